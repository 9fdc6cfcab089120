#include "npy.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <new>
#include <optional>

#include "files.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays are kept in the file's byte order");

constexpr std::string_view magic = "\x93NUMPY";
/// NumPy itself refuses headers beyond 10,000 bytes unless told otherwise.
constexpr std::uint64_t longest_header = 1 << 16;
constexpr std::size_t most_dimensions = 64;

[[noreturn]] void malformed(const std::string& reason) { throw Error(ErrorCode::io, reason); }
/// The file is sound, but its elements are of no use here.
[[noreturn]] void unusable(const std::string& reason) { throw Error(ErrorCode::unsupported, reason); }

/// Bytes of a hostile file made fit for a terminal.
std::string printable(std::string_view text) {
  std::string out;
  for (const char character : text.substr(0, 40)) {
    if (character >= ' ' && character <= '~') {
      out += character;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(character));
    }
  }
  return text.size() > 40 ? out + "..." : out;
}

struct TypeEntry {
  NpyType type;
  std::string_view descr;
  std::size_t size;
  std::size_t swap_unit;  ///< bytes that change places between big and little endian
};
constexpr std::array<TypeEntry, 7> type_table{{{NpyType::f16, "<f2", 2, 2},
                                               {NpyType::f32, "<f4", 4, 4},
                                               {NpyType::f64, "<f8", 8, 8},
                                               {NpyType::complex64, "<c8", 8, 4},
                                               {NpyType::complex128, "<c16", 16, 8},
                                               {NpyType::uint16, "<u2", 2, 2},
                                               {NpyType::void16, "<V2", 2, 1}}};

const TypeEntry& entry_of(NpyType type) { return type_table.at(static_cast<std::size_t>(type)); }

struct Header {
  NpyType type = NpyType::f32;
  bool big_endian = false;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::size_t payload_begin = 0;
  std::size_t payload_size = 0;
};

/// Whether NumPy writes such a type, its byte order left out: a letter, a size, the unit of a time.
bool is_numpy_type(std::string_view text) {
  if (std::string_view("?bBiufcmMOSaUV").find(text[0]) == std::string_view::npos) return false;
  const bool is_time = text[0] == 'm' || text[0] == 'M';
  const std::string_view size = text.substr(1, is_time ? text.find('[') - 1 : std::string_view::npos);
  return size.find_first_not_of("0123456789") == std::string_view::npos;
}

void set_type(Header& header, std::string_view text) {
  const bool known_order =
      text.size() >= 2 && std::string_view("<>=|").find(text[0]) != std::string_view::npos;
  const auto entry = std::find_if(type_table.begin(), type_table.end(), [&](const TypeEntry& candidate) {
    return known_order && candidate.descr.substr(1) == text.substr(1);
  });
  const bool is_known = entry != type_table.end();
  // '|' means "has no byte order", which is true of void only.
  if (!is_known || (text[0] == '|' && entry->type != NpyType::void16)) {
    const std::string reason = fmt::format(
        "has the dtype '{}'; readable are f2, f4, f8, c8, c16, and u2 or V2 for bf16", printable(text));
    if (!is_known && known_order && is_numpy_type(text.substr(1))) unusable(reason);
    malformed(reason);
  }
  header.type = entry->type;
  header.big_endian = text[0] == '>';
}

/// Reads the header's Python dictionary: three known keys, each once, in any order.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  Header parse() {
    Header header;
    bool has_descr = false;
    bool has_order = false;
    bool has_shape = false;
    const auto first_time = [](bool& seen, std::string_view key) {
      if (seen) malformed(fmt::format("has the key '{}' twice in its header", key));
      seen = true;
    };
    expect('{');
    while (!accept('}')) {
      const std::string_view key = string();
      expect(':');
      if (key == "descr") {
        first_time(has_descr, key);
        if (peek() == '[') unusable("holds structured records; a plain numeric dtype is needed");
        set_type(header, string());
      } else if (key == "fortran_order") {
        first_time(has_order, key);
        header.fortran_order = boolean();
      } else if (key == "shape") {
        first_time(has_shape, key);
        header.shape = shape();
      } else {
        malformed(fmt::format("has the unknown key '{}' in its header", printable(key)));
      }
      if (!accept(',') && peek() != '}') wrong("',' or '}'");
    }
    if (peek() != '\0' || position_ != text_.size()) wrong("the end of the header");
    if (!has_descr || !has_order || !has_shape) {
      malformed("lacks one of the keys 'descr', 'fortran_order', 'shape' in its header");
    }
    return header;
  }

 private:
  /// The next character that is not white space; '\0' at the end.
  char peek() {
    while (position_ < text_.size() &&
           std::string_view(" \t\n\r").find(text_[position_]) != std::string_view::npos) {
      ++position_;
    }
    return position_ < text_.size() ? text_[position_] : '\0';
  }

  bool accept(char wanted) {
    if (position_ >= text_.size() || peek() != wanted) return false;
    ++position_;
    return true;
  }

  void expect(char wanted) {
    if (!accept(wanted)) wrong(fmt::format("'{}'", wanted));
  }

  [[noreturn]] void wrong(const std::string& wanted) {
    malformed(fmt::format("has a malformed header: {} was expected at byte {}, there is '{}'", wanted,
                          position_, printable(text_.substr(std::min(position_, text_.size()), 12))));
  }

  std::string_view string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') wrong("a string");
    const std::size_t begin = ++position_;
    const std::size_t end = text_.find(quote, begin);
    if (end == std::string_view::npos) wrong("a closing quote");
    position_ = end + 1;
    return text_.substr(begin, end - begin);
  }

  bool boolean() {
    peek();
    for (const auto& [word, value] : {std::pair{std::string_view("True"), true}, {"False", false}}) {
      if (text_.substr(position_).starts_with(word)) {
        position_ += word.size();
        return value;
      }
    }
    wrong("True or False");
  }

  std::int64_t dimension() {
    if (peek() == '-') malformed("has a negative dimension in its shape");
    if (peek() < '0' || peek() > '9') wrong("a dimension");
    std::int64_t value = 0;
    while (position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9') {
      if (__builtin_mul_overflow(value, std::int64_t{10}, &value) ||
          __builtin_add_overflow(value, std::int64_t{text_[position_] - '0'}, &value)) {
        malformed("has a dimension in its shape that does not fit in 64 bits");
      }
      ++position_;
    }
    if (position_ < text_.size() && text_[position_] == 'L') ++position_;  // written by Python 2
    return value;
  }

  std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> dimensions;
    expect('(');
    while (!accept(')')) {
      if (dimensions.size() == most_dimensions) malformed("has more than 64 dimensions");
      dimensions.push_back(dimension());
      if (!accept(',') && (peek() != ')' || dimensions.size() < 2)) wrong("','");
    }
    return dimensions;
  }

  std::string_view text_;
  std::size_t position_ = 0;
};

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t index = bytes.size(); index-- > 0;)
    value = value << 8 | static_cast<unsigned char>(bytes[index]);
  return value;
}

/// Bytes of the array; nothing when they do not fit in 63 bits.
std::optional<std::int64_t> payload_bytes(const Header& header) {
  auto bytes = static_cast<std::int64_t>(entry_of(header.type).size);
  if (std::find(header.shape.begin(), header.shape.end(), 0) != header.shape.end()) return 0;
  for (const std::int64_t dimension : header.shape) {
    if (__builtin_mul_overflow(bytes, dimension, &bytes)) return std::nullopt;
  }
  return bytes;
}

/// `beginning` holds the file's first bytes, at least its header unless the file is shorter.
Header read_header(std::string_view beginning, std::uint64_t file_size) {
  if (!beginning.starts_with(magic)) malformed("is not an .npy file (its first bytes are not \\x93NUMPY)");
  if (beginning.size() < 8) malformed("ends before its format version");
  const int major = beginning[6];
  const int minor = beginning[7];
  if (major < 1 || major > 3 || minor != 0) {
    malformed(fmt::format("has format version {}.{}; known are 1.0, 2.0 and 3.0",
                          static_cast<unsigned char>(major), static_cast<unsigned char>(minor)));
  }
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  if (beginning.size() < 8 + length_bytes) malformed("ends before the length of its header");
  const std::uint64_t length = little_endian(beginning.substr(8, length_bytes));
  const std::uint64_t begin = 8 + length_bytes;
  if (length > file_size - begin) {
    malformed(
        fmt::format("announces a header of {} bytes but holds only {} more", length, file_size - begin));
  }
  if (length > longest_header) {
    malformed(fmt::format("announces a header of {} bytes; at most {} are read", length, longest_header));
  }
  Header header = HeaderParser(beginning.substr(begin, length)).parse();
  header.payload_begin = static_cast<std::size_t>(begin + length);
  const std::uint64_t held = file_size - begin - length;
  const std::optional<std::int64_t> needed = payload_bytes(header);
  if (!needed || static_cast<std::uint64_t>(*needed) != held) {
    malformed(fmt::format("announces shape {} of {}, {} bytes, but holds {}", shape_text(header.shape),
                          descr(header.type), needed ? std::to_string(*needed) : "more than 2^63", held));
  }
  header.payload_size = static_cast<std::size_t>(held);
  return header;
}

/// Row-major copy of a column-major array: walks the output, stepping through the input like an odometer.
std::vector<std::byte> to_row_major(std::span<const std::byte> data, std::span<const std::int64_t> shape,
                                    std::size_t element) {
  std::vector<std::byte> out(data.size());
  std::vector<std::size_t> stride(shape.size());
  std::size_t elements = 1;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    stride[axis] = elements;
    elements *= static_cast<std::size_t>(shape[axis]);
  }
  std::vector<std::int64_t> index(shape.size());
  std::size_t source = 0;
  for (std::size_t target = 0; target < elements; ++target) {
    std::memcpy(out.data() + target * element, data.data() + source * element, element);
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      source += stride[axis];
      if (++index[axis] < shape[axis]) break;
      source -= stride[axis] * static_cast<std::size_t>(shape[axis]);
      index[axis] = 0;
    }
  }
  return out;
}

NpyArray normalised(const Header& header, std::vector<std::byte> data) {
  const TypeEntry& entry = entry_of(header.type);
  if (header.big_endian) {
    for (auto begin = data.begin(); begin != data.end();
         begin += static_cast<std::ptrdiff_t>(entry.swap_unit)) {
      std::reverse(begin, begin + static_cast<std::ptrdiff_t>(entry.swap_unit));
    }
  }
  if (header.fortran_order && header.shape.size() > 1 && !data.empty()) {
    data = to_row_major(data, header.shape, entry.size);
  }
  return {header.type, header.shape, std::move(data)};
}

}  // namespace

std::size_t size_of(NpyType type) { return entry_of(type).size; }

std::string_view descr(NpyType type) { return entry_of(type).descr; }

std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

NpyArray parse_npy(std::span<const std::byte> file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  const Header header = read_header(text, file.size());
  const auto payload = file.subspan(header.payload_begin, header.payload_size);
  return normalised(header, {payload.begin(), payload.end()});
}

NpyArray load_npy(const std::filesystem::path& path) {
  InputFile file(path);
  try {
    std::string beginning(static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), 12 + longest_header)),
                          '\0');
    file.read(0, std::as_writable_bytes(std::span(beginning)));
    const Header header = read_header(beginning, file.size());
    std::vector<std::byte> data(header.payload_size);
    file.read(header.payload_begin, data);
    return normalised(header, std::move(data));
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", path.string(), error.what()));
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::out_of_memory,
                fmt::format("{}: memory ran out for its {} bytes", path.string(), file.size()));
  }
}

std::string npy_header(NpyType type, std::span<const std::int64_t> shape) {
  std::string dictionary =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", descr(type), shape_text(shape));
  // The array starts at a multiple of 64 bytes, as NumPy's own files do, so that it can be mapped.
  const std::size_t prefix = 10;
  dictionary.append(63 - (prefix + dictionary.size()) % 64, ' ');
  dictionary += '\n';
  const std::size_t length = dictionary.size();
  std::string header(magic);
  header += {'\x01', '\x00', static_cast<char>(length & 0xff), static_cast<char>(length >> 8)};
  return header + dictionary;
}

void save_npy(const std::filesystem::path& path, NpyType type, std::span<const std::int64_t> shape,
              std::span<const std::byte> data) {
  const std::string header = npy_header(type, shape);
  write_atomically(path, {std::as_bytes(std::span(header)), data});
}

}  // namespace kronsparse::cli
