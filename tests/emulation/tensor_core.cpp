// wgmma and mma on the CPU, with registers and shared memory arranged as in PTX's tables.
#include <array>
#include <bit>
#include <cstring>

#include "block.hpp"
#include "builtins.hpp"

namespace kronsparse::emulation {
namespace {

using Kind = WgmmaIssue::Kind;

constexpr int kRows = 64;
constexpr int kMaxColumns = 256;
constexpr int kMaxTerms = 16;

/// Every half number as a float.
const std::array<float, 65536>& half_numbers() {
  static const auto numbers = [] {
    auto table = std::make_unique<std::array<float, 65536>>();
    for (unsigned bits = 0; bits < 65536; ++bits)
      (*table)[bits] = __half2float(std::bit_cast<__half>(static_cast<std::uint16_t>(bits)));
    return table;
  }();
  return *numbers;
}

float number_of(Kind kind, std::uint16_t bits) {
  return kind == Kind::f16 ? half_numbers()[bits] : std::bit_cast<float>(std::uint32_t{bits} << 16);
}
/// Tensor cores ignore the bits that a TF32 number does not have.
float tf32_of(std::uint32_t bits) { return std::bit_cast<float>(bits & 0xffffe000u); }

struct Matrices {
  float left[kRows][kMaxTerms];
  float right[kMaxTerms][kMaxColumns];
  float sums[kRows][kMaxColumns];
};

/// Most of the time goes here. The bounds are constants, so sanitizers would find nothing.
__attribute__((no_sanitize("address", "undefined"))) void multiply(Matrices& m, int columns, int terms) {
  for (int row = 0; row < kRows; ++row)
    for (int term = 0; term < terms; ++term) {
      const float left = m.left[row][term];
      const float* right = m.right[term];
      float* sums = m.sums[row];
      for (int column = 0; column < columns; ++column) sums[column] += left * right[column];
    }
}

/// Lane 4g + t of warp w holds rows 16w + g and 16w + g + 8: terms 2t, 2t + 1, 2t + 8 and 2t + 9 of 16 half
/// terms, or terms t and t + 4 of 8 TF32 terms.
void gather_left(Matrices& m, const WgmmaIssue& product, int thread) {
  const int row = thread / 32 * 16 + thread % 32 / 4;
  const int t = thread % 4;
  for (int index = 0; index < 4; ++index) {
    const std::uint32_t bits = product.left[index];
    float* left = m.left[row + index % 2 * 8];
    if (product.kind == Kind::tf32) {
      left[t + index / 2 * 4] = tf32_of(bits);
    } else {
      left[2 * t + index / 2 * 8] = number_of(product.kind, static_cast<std::uint16_t>(bits));
      left[2 * t + index / 2 * 8 + 1] = number_of(product.kind, static_cast<std::uint16_t>(bits >> 16));
    }
  }
}

/// The address of an operand. A swizzled one begins in the first of 8 rows that are swizzled alike: another
/// beginning would need an offset in the descriptor.
std::uint32_t begin_of(std::uint64_t operand) {
  const auto address = static_cast<std::uint32_t>(operand & 0x3fff) << 4;
  if ((operand & kSwizzled) != 0 && address % 1024 >= 128)
    throw EmulationError("a swizzled operand that begins between 8 rows");
  return address;
}

/// The half number at a place of an operand. Swizzled: 8 rows of 128 bytes, then the next 8; the hardware
/// exchanges units of 16 bytes by the address itself. Otherwise: blocks of 8 rows of 16 bytes.
float shared_number(Block& block, Kind kind, std::uint64_t operand, int row, int byte) {
  const auto field = [&](int shift) { return static_cast<std::uint32_t>(operand >> shift & 0x3fff) << 4; };
  const bool swizzled = (operand & kSwizzled) != 0;
  std::uint32_t address = begin_of(operand) + static_cast<std::uint32_t>(row / 8) * field(32);
  if (swizzled) {
    address += static_cast<std::uint32_t>(row % 8 * 128 + byte);
    address ^= (address >> 7 & 7) << 4;
  } else {
    address += static_cast<std::uint32_t>(byte / 16) * field(16) +
               static_cast<std::uint32_t>(row % 8 * 16 + byte % 16);
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, block.shared(address, 2, 2), 2);
  return number_of(kind, bits);
}

/// The half number in an operand with a row of samples (or columns) for each term. Swizzled: rows of 64, 8
/// terms and then the next 8; the rest of a row lies further on. Otherwise: blocks of 8 terms of 16 bytes.
float number_by_terms(Block& block, Kind kind, std::uint64_t operand, int place, int term) {
  const auto field = [&](int shift) { return static_cast<std::uint32_t>(operand >> shift & 0x3fff) << 4; };
  const auto at = static_cast<std::uint32_t>(place), row = static_cast<std::uint32_t>(term);
  std::uint32_t address = begin_of(operand);
  if ((operand & kSwizzled) != 0) {
    address += at / 64 * field(16) + row / 8 * field(32) + row % 8 * 128 + at % 64 * 2;
    address ^= (address >> 7 & 7) << 4;
  } else {
    address += at / 8 * field(32) + row / 8 * field(16) + row % 8 * 16 + at % 8 * 2;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, block.shared(address, 2, 2), 2);
  return number_of(kind, bits);
}

/// Gathers the left operand: a row of terms for each sample, or a row of samples for each term.
void gather_shared_left(Matrices& m, Block& block, const WgmmaIssue& product) {
  const bool columns = product.left_form == WgmmaIssue::Left::columns;
  for (int row = 0; row < kRows; ++row)
    for (int term = 0; term < kMaxTerms; ++term)
      m.left[row][term] = columns ? number_by_terms(block, product.kind, product.left_shared, row, term)
                                  : shared_number(block, product.kind, product.left_shared, row, term * 2);
}

/// Gathers the right operand: blocks of 8 columns by 16 bytes of terms, each contiguous, with 16 bytes for
/// each column.
void gather_right(Matrices& m, Block& block, const WgmmaIssue& product) {
  const auto field = [&](int shift) {
    return static_cast<std::uint32_t>(product.right >> shift & 0x3fff) << 4;
  };
  if (product.right_columns) {
    for (int column = 0; column < product.columns; ++column)
      for (int term = 0; term < kMaxTerms; ++term)
        m.right[term][column] = number_by_terms(block, product.kind, product.right, column, term);
    return;
  }
  if ((product.right & kSwizzled) != 0) {
    for (int column = 0; column < product.columns; ++column)
      for (int term = 0; term < kMaxTerms; ++term)
        m.right[term][column] = shared_number(block, product.kind, product.right, column, term * 2);
    return;
  }
  const std::uint32_t address = field(0), next_terms = field(16), next_columns = field(32);
  for (int column = 0; column < product.columns; ++column)
    for (std::uint32_t half = 0; half < 2; ++half) {
      const std::byte* from = block.shared(
          address + half * next_terms + static_cast<std::uint32_t>(column / 8) * next_columns, 128, 16);
      from += column % 8 * 16;
      if (product.kind == Kind::tf32) {
        std::array<std::uint32_t, 4> four{};
        std::memcpy(four.data(), from, 16);
        for (std::size_t at = 0; at < 4; ++at) m.right[half * 4 + at][column] = tf32_of(four[at]);
      } else {
        std::array<std::uint16_t, 8> eight{};
        std::memcpy(eight.data(), from, 16);
        for (std::size_t at = 0; at < 8; ++at)
          m.right[half * 8 + at][column] = number_of(product.kind, eight[at]);
      }
    }
}

/// Calls action(sum in the matrix, sum in the thread's registers) for all sums of the thread.
template <class Action>
void for_sums(Matrices& m, const WgmmaIssue& product, int thread, const Action& action) {
  const int row = thread / 32 * 16 + thread % 32 / 4;
  for (int e = 0; e < product.columns / 2; ++e)
    action(m.sums[row + e % 4 / 2 * 8][e / 4 * 8 + thread % 4 * 2 + e % 2], product.sums[e]);
}

}  // namespace

void Block::issue(const WgmmaIssue& product) {
  thread().products.push_back(product);
  ++thread().open_products;
}

void Block::commit_products() {
  thread().product_groups.push_back(thread().open_products);
  thread().open_products = 0;
}

void Block::wait_products(std::size_t pending) {
  const int first = running_ / 128 * 128;
  meet(warpgroup_meeting(), 128, [this, first, pending] {
    // All other threads run first: they may overwrite memory that was released too early.
    thread().wait = Thread::Wait::nothing;
    suspend();
    while (thread(first).product_groups.size() > pending) multiply_oldest_group(first);
  });
}

void Block::multiply_oldest_group(int first_thread) {
  static Matrices matrices;
  const std::size_t count = thread(first_thread).product_groups.front();
  for (std::size_t at = 0; at < count; ++at) {
    const WgmmaIssue& product = thread(first_thread).products.at(at);
    for (int index = 0; index < 128; ++index) {
      const Thread& one = thread(first_thread + index);
      if (one.product_groups.empty() || one.product_groups.front() != count)
        throw EmulationError("the threads of a warpgroup issued different wgmma");
      const WgmmaIssue& own = one.products.at(at);
      if (own.kind != product.kind || own.columns != product.columns || own.right != product.right ||
          own.add != product.add || own.left_form != product.left_form ||
          own.left_shared != product.left_shared || own.right_columns != product.right_columns)
        throw EmulationError("the threads of a warpgroup gave a wgmma different operands");
      if (own.left_form == WgmmaIssue::Left::registers) gather_left(matrices, own, index);
      for_sums(matrices, own, index, [&](float& sum, const float& held) { sum = product.add ? held : 0.0f; });
    }
    if (product.left_form != WgmmaIssue::Left::registers) gather_shared_left(matrices, *this, product);
    gather_right(matrices, *this, product);
    multiply(matrices, product.columns, product.kind == Kind::tf32 ? 8 : 16);
    for (int index = 0; index < 128; ++index)
      for_sums(matrices, thread(first_thread + index).products[at], index,
               [](const float& sum, float& held) { held = sum; });
  }
  for (int index = 0; index < 128; ++index) {
    Thread& one = thread(first_thread + index);
    one.products.erase(one.products.begin(), one.products.begin() + static_cast<std::ptrdiff_t>(count));
    one.product_groups.pop_front();
  }
}

/// Lane 4g + t holds rows g and g + 8 of the left operand and column g of the right one, each for terms 2t,
/// 2t + 1, 2t + 8 and 2t + 9; and sums of rows g and g + 8 in columns 2t and 2t + 1.
void Block::multiply_in_warp(const MmaIssue& product) {
  const int first = running_ / 32 * 32;
  thread().lane_product = &product;
  meet(warp_meeting(), 32, [this, first] {
    float left[16][16]{}, right[16][8]{};
    const auto lane_of = [&](int lane) -> const MmaIssue& { return *thread(first + lane).lane_product; };
    for (int lane = 0; lane < 32; ++lane) {
      const MmaIssue& own = lane_of(lane);
      const int g = lane / 4;
      if (own.kind == WgmmaIssue::Kind::tf32) {  // 8 terms, of a word each
        const auto number = [](std::uint32_t word) { return std::bit_cast<float>(word & 0xffffe000u); };
        for (int index = 0; index < 4; ++index)
          left[g + index % 2 * 8][lane % 4 + index / 2 * 4] =
              number(own.left[static_cast<std::size_t>(index)]);
        for (int index = 0; index < 2; ++index)
          right[lane % 4 + index * 4][g] = number(own.right[static_cast<std::size_t>(index)]);
        continue;
      }
      for (int odd = 0; odd < 2; ++odd) {
        const auto number = [&](std::uint32_t pair) {
          return number_of(own.kind, static_cast<std::uint16_t>(pair >> (16 * odd)));
        };
        const int term = 2 * (lane % 4) + odd;
        for (int index = 0; index < 4; ++index)
          left[g + index % 2 * 8][term + index / 2 * 8] = number(own.left[static_cast<std::size_t>(index)]);
        for (int index = 0; index < 2; ++index)
          right[term + index * 8][g] = number(own.right[static_cast<std::size_t>(index)]);
      }
    }
    for (int lane = 0; lane < 32; ++lane)
      for (int e = 0; e < 4; ++e) {
        float sum = lane_of(lane).sums[e];
        const int terms = lane_of(lane).kind == WgmmaIssue::Kind::tf32 ? 8 : 16;
        for (int term = 0; term < terms; ++term)
          sum += left[lane / 4 + e / 2 * 8][term] * right[term][lane % 4 * 2 + e % 2];
        lane_of(lane).sums[e] = sum;
      }
  });
}

}  // namespace kronsparse::emulation
