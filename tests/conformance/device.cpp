#include "device.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "kronsparse/buffer.hpp"
#include "kronsparse/error.hpp"

namespace conformance {
namespace {

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

class Mapping final : public Memory {
 public:
  Mapping(void* base, std::size_t length, std::byte* data) : base_(base), length_(length), data_(data) {}
  ~Mapping() override { munmap(base_, length_); }
  [[nodiscard]] std::byte* data() const override { return data_; }

 private:
  void* base_;
  std::size_t length_;
  std::byte* data_;
};

class CpuTestDevice final : public TestDevice {
 public:
  [[nodiscard]] kronsparse::Device device() const override { return {}; }

  /// Whole pages between two inaccessible ones.
  [[nodiscard]] std::unique_ptr<Memory> allocate(std::size_t bytes, Edge edge) const override {
    const std::size_t page = page_size();
    const std::size_t usable = std::max<std::size_t>((bytes + page - 1) / page, 1) * page;
    const std::size_t length = usable + 2 * page;
    void* base = mmap(nullptr, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) throw std::bad_alloc();
    std::byte* first = static_cast<std::byte*>(base) + page;
    auto mapping =
        std::make_unique<Mapping>(base, length, edge == Edge::after ? first + usable - bytes : first);
    if (mprotect(first, usable, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    return mapping;
  }

  [[nodiscard]] std::unique_ptr<Memory> allocate_sparse(std::size_t bytes) const override {
    void* base =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return nullptr;
    return std::make_unique<Mapping>(base, bytes, static_cast<std::byte*>(base));
  }

  void copy_in(std::byte* to_device, const std::byte* from_host, std::size_t bytes) const override {
    std::memcpy(to_device, from_host, bytes);
  }
  void copy_out(std::byte* to_host, const std::byte* from_device, std::size_t bytes) const override {
    std::memcpy(to_host, from_device, bytes);
  }
  [[nodiscard]] bool same(const std::byte* on_device, const std::byte* on_host,
                          std::size_t bytes) const override {
    return std::memcmp(on_device, on_host, bytes) == 0;
  }
  void synchronise() const override {}
};

class BufferMemory final : public Memory {
 public:
  explicit BufferMemory(kronsparse::Buffer buffer) : buffer_(std::move(buffer)) {}
  [[nodiscard]] std::byte* data() const override { return static_cast<std::byte*>(buffer_.data()); }

 private:
  kronsparse::Buffer buffer_;
};

/// A device with memory of its own. An allocation ends where it was asked to
/// end, which is all that a checker like compute-sanitizer needs to see a
/// kernel beyond it, so the edges are the same here.
class GpuTestDevice final : public TestDevice {
 public:
  explicit GpuTestDevice(kronsparse::Device device) : device_(device) {}
  [[nodiscard]] kronsparse::Device device() const override { return device_; }

  [[nodiscard]] std::unique_ptr<Memory> allocate(std::size_t bytes, Edge /*edge*/) const override {
    return std::make_unique<BufferMemory>(kronsparse::Buffer(std::max<std::size_t>(bytes, 1), device_));
  }

  /// Plain memory, as long as that leaves something for other programs.
  [[nodiscard]] std::unique_ptr<Memory> allocate_sparse(std::size_t bytes) const override {
    constexpr std::size_t left_for_others = std::size_t{6} << 30;
    try {
      kronsparse::Buffer buffer(bytes, device_);
      static_cast<void>(kronsparse::Buffer(left_for_others, device_));
      buffer.clear();
      kronsparse::synchronise(device_);
      return std::make_unique<BufferMemory>(std::move(buffer));
    } catch (const kronsparse::Error& error) {
      if (error.code() != kronsparse::ErrorCode::out_of_memory) throw;
      return nullptr;
    }
  }

  void copy_in(std::byte* to_device, const std::byte* from_host, std::size_t bytes) const override {
    kronsparse::copy_from_host(to_device, from_host, bytes, device_);
  }
  void copy_out(std::byte* to_host, const std::byte* from_device, std::size_t bytes) const override {
    kronsparse::copy_to_host(to_host, from_device, bytes, device_);
  }
  [[nodiscard]] bool same(const std::byte* on_device, const std::byte* on_host,
                          std::size_t bytes) const override {
    std::vector<std::byte> now(bytes);
    copy_out(now.data(), on_device, bytes);
    return std::memcmp(now.data(), on_host, bytes) == 0;
  }
  void synchronise() const override { kronsparse::synchronise(device_); }

 private:
  kronsparse::Device device_;
};

constexpr std::byte kPoison{0xff};

}  // namespace

std::unique_ptr<TestDevice> make_test_device(kronsparse::Device device) {
  if (device.backend == kronsparse::Backend::cpu) return std::make_unique<CpuTestDevice>();
  return std::make_unique<GpuTestDevice>(device);
}

GuardedBuffer::GuardedBuffer(const TestDevice& device, std::size_t bytes, Placement placement,
                             std::size_t misalignment)
    : device_(device), front_(kGuardBytes), bytes_(bytes) {
  std::size_t back = kGuardBytes;
  Edge edge = Edge::none;
  if (placement == Placement::misaligned) front_ += misalignment;
  if (placement == Placement::flush_start) {
    front_ = 0;
    edge = Edge::before;
  }
  if (placement == Placement::flush_end) {
    back = 0;
    edge = Edge::after;
  }
  image_.assign(front_ + bytes + back, kPoison);
  memory_ = device.allocate(image_.size(), edge);
}

void GuardedBuffer::poison() { std::fill(image_.begin(), image_.end(), kPoison); }

void GuardedBuffer::upload() { device_.copy_in(memory_->data(), image_.data(), image_.size()); }

void GuardedBuffer::download() { device_.copy_out(image_.data(), memory_->data(), image_.size()); }

bool GuardedBuffer::unchanged() const { return device_.same(memory_->data(), image_.data(), image_.size()); }

std::string GuardedBuffer::damaged_guard() const {
  const auto untouched = [](std::byte byte) { return byte == kPoison; };
  const auto payload = image_.begin() + static_cast<std::ptrdiff_t>(front_);
  const auto payload_end = payload + static_cast<std::ptrdiff_t>(bytes_);
  const auto before = std::find_if_not(image_.begin(), payload, untouched);
  if (before != payload) return std::to_string(payload - before) + " bytes before the first element";
  const auto after = std::find_if_not(payload_end, image_.end(), untouched);
  if (after != image_.end()) return std::to_string(after - payload_end) + " bytes after the last element";
  return {};
}

}  // namespace conformance
