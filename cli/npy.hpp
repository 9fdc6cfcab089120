// Reads and writes NumPy's .npy files (format versions 1.0, 2.0 and 3.0).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kronsparse::cli {

/// Element types that kronsparse can read. The last two are 16 bits without a
/// meaning to NumPy; they carry bfloat16 ('<V2' is what ml_dtypes writes).
enum class NpyType : std::uint8_t { f16, f32, f64, complex64, complex128, uint16, void16 };

[[nodiscard]] std::size_t size_of(NpyType type);
/// The little-endian type string as it stands in a file: "<f4", "<V2", ...
[[nodiscard]] std::string_view descr(NpyType type);

/// An array in memory: row-major (C order), little-endian, whatever the file had.
struct NpyArray {
  NpyType type = NpyType::f32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> data;

  friend bool operator==(const NpyArray&, const NpyArray&) = default;
};

/// "(3, 4)", "(5,)", "()", as Python prints it.
[[nodiscard]] std::string shape_text(std::span<const std::int64_t> shape);

/// Reads a whole file held in memory. Error io says what is wrong with it, Error
/// unsupported which dtype a sound file has that is none of NpyType.
[[nodiscard]] NpyArray parse_npy(std::span<const std::byte> file);
/// Reads a file; errors name the path. Allocates no more than the file holds.
[[nodiscard]] NpyArray load_npy(const std::filesystem::path& path);

/// The header (version 1.0; 64 dimensions always fit) that stands before the data.
[[nodiscard]] std::string npy_header(NpyType type, std::span<const std::int64_t> shape);
/// Writes atomically: the file appears complete or not at all.
void save_npy(const std::filesystem::path& path, NpyType type, std::span<const std::int64_t> shape,
              std::span<const std::byte> data);

}  // namespace kronsparse::cli
