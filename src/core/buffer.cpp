#include "kronsparse/buffer.hpp"

#include <utility>

#include "core/implementation.hpp"
#include "core/message.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse {
namespace {

/// The memory of a device that was found to be there before.
const MemoryOps& memory_of(Device device) noexcept {
  for (const BackendEntry& entry : backends())
    if (entry.backend == device.backend) return entry.memory;
  return cpu_backend().memory;
}

void check_range(const Buffer& buffer, std::size_t bytes, std::size_t offset) {
  if (offset > buffer.bytes() || bytes > buffer.bytes() - offset)
    throw Error(ErrorCode::size_mismatch,
                message("bytes: {} at offset {} given, the buffer has {}", bytes, offset, buffer.bytes()));
}

void check_pointers(const void* to, const void* from, std::size_t bytes) {
  if (bytes == 0 || (to != nullptr && from != nullptr)) return;
  throw Error(ErrorCode::bad_pointer,
              message("{}: null given for {} bytes", to == nullptr ? "to" : "from", bytes));
}

}  // namespace

Buffer::Buffer(std::size_t bytes, Device device) : device_(device), bytes_(bytes) {
  const MemoryOps& memory = backend_of(device).memory;
  if (bytes > 0) data_ = memory.allocate(device, bytes);
}

Buffer::Buffer(Buffer&& other) noexcept
    : device_(other.device_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) memory_of(device_).release(device_, data_);
}

void Buffer::copy_from_host(const void* from, std::size_t bytes, std::size_t offset, Stream stream) {
  check_range(*this, bytes, offset);
  check_pointers(data_, from, bytes);
  if (bytes > 0)
    memory_of(device_).upload(device_, static_cast<std::byte*>(data_) + offset, from, bytes, stream);
}

void Buffer::copy_to_host(void* to, std::size_t bytes, std::size_t offset, Stream stream) const {
  check_range(*this, bytes, offset);
  check_pointers(to, data_, bytes);
  if (bytes > 0)
    memory_of(device_).download(device_, to, static_cast<const std::byte*>(data_) + offset, bytes, stream);
}

void Buffer::copy_from(const Buffer& other, Stream stream) {
  if (other.device_ != device_)
    throw Error(ErrorCode::invalid_argument, message("other: a buffer of {} given, must be of {}",
                                                     other.device_.to_string(), device_.to_string()));
  if (other.bytes_ != bytes_)
    throw Error(ErrorCode::size_mismatch,
                message("other: a buffer of {} bytes given, must have {}", other.bytes_, bytes_));
  if (bytes_ > 0 && other.data_ != data_)
    memory_of(device_).copy(device_, data_, other.data_, bytes_, stream);
}

void Buffer::clear(Stream stream) {
  if (bytes_ > 0) memory_of(device_).clear(device_, data_, bytes_, stream);
}

void copy_from_host(void* to, const void* from, std::size_t bytes, Device device, Stream stream) {
  check_pointers(to, from, bytes);
  backend_of(device).memory.upload(device, to, from, bytes, stream);
}

void copy_to_host(void* to, const void* from, std::size_t bytes, Device device, Stream stream) {
  check_pointers(to, from, bytes);
  backend_of(device).memory.download(device, to, from, bytes, stream);
}

void synchronise(Device device, Stream stream) { backend_of(device).memory.synchronise(device, stream); }

bool is_capturing(Device device, Stream stream) {
  const MemoryOps& memory = memory_of(device);
  return memory.is_capturing != nullptr && memory.is_capturing(device, stream);
}

Timer::Timer(Device device, Stream stream) : device_(device), stream_(stream) {
  static_cast<void>(backend_of(device));
}

Timer::Timer(Timer&& other) noexcept
    : device_(other.device_), stream_(other.stream_), marks_(std::exchange(other.marks_, {})) {}

Timer& Timer::operator=(Timer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(stream_, other.stream_);
  std::swap(marks_, other.marks_);
  return *this;
}

Timer::~Timer() {
  for (void* mark : marks_) memory_of(device_).drop_mark(device_, mark);
}

void Timer::mark() {
  marks_.push_back(nullptr);  // first, so that a mark that was made is never lost
  try {
    marks_.back() = memory_of(device_).make_mark(device_, stream_);
  } catch (...) {
    marks_.pop_back();
    throw;
  }
}

std::vector<double> Timer::seconds() const {
  std::vector<double> all;
  for (std::size_t index = 1; index < marks_.size(); ++index)
    all.push_back(memory_of(device_).seconds_between(device_, marks_[index - 1], marks_[index]));
  return all;
}

}  // namespace kronsparse
