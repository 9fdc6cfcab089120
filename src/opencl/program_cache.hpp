// Compiled programs on disk, so that a kernel is compiled once for a user and not once for a process.
//
// core/user_cache.hpp says where the folder is and how files are written. A file is named by a hash of its
// key and holds the key, so that equal hashes do no harm.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kronsparse::opencl {

/// The folder of programs; empty where none is to be used.
[[nodiscard]] std::string cache_folder();

/// The program that was kept for the key; nothing where there is none, or its file is damaged.
[[nodiscard]] std::optional<std::vector<unsigned char>> read_cached(std::string_view key);
/// Keeps a program. A folder that cannot be written is no error.
void write_cached(std::string_view key, const std::vector<unsigned char>& program);

}  // namespace kronsparse::opencl
