// The .npy reader and writer, on good files and on hostile ones.
#include "npy.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "command_fixture.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse::cli {
namespace {

using NpyFileTest = CommandTest;

std::string file_of(int major, const std::string& dictionary, const std::string& payload) {
  std::string file = "\x93NUMPY";
  file += {static_cast<char>(major), '\0'};
  const std::size_t length = dictionary.size();
  for (int byte = 0; byte < (major == 1 ? 2 : 4); ++byte)
    file += static_cast<char>(length >> (8 * byte) & 0xff);
  return file + dictionary + payload;
}

std::string dictionary(const std::string& descr, const std::string& shape,
                       const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
}

NpyArray parse(const std::string& file) { return parse_npy(std::as_bytes(std::span(file))); }

template <class T>
std::vector<T> elements(const NpyArray& array) {
  std::vector<T> out(array.data.size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), array.data.data(), array.data.size());
  return out;
}

std::string bytes_of(const std::vector<float>& data) {
  return {reinterpret_cast<const char*>(data.data()), data.size() * sizeof(float)};
}

TEST(Npy, ReadsEveryVersion) {
  for (const int version : {1, 2, 3}) {
    const NpyArray array = parse(file_of(version, dictionary("<f4", "(1, 2)"), bytes_of({1, 2})));
    EXPECT_EQ(array.type, NpyType::f32);
    EXPECT_EQ(array.shape, (std::vector<std::int64_t>{1, 2}));
    EXPECT_EQ(elements<float>(array), (std::vector<float>{1, 2}));
  }
}

TEST(Npy, ReadsEveryType) {
  const std::vector<std::pair<std::string, NpyType>> types{
      {"<f2", NpyType::f16},    {"<f4", NpyType::f32},       {"<f8", NpyType::f64},
      {"=f4", NpyType::f32},    {"<c8", NpyType::complex64}, {"<c16", NpyType::complex128},
      {"<u2", NpyType::uint16}, {">u2", NpyType::uint16},    {"<V2", NpyType::void16},
      {"|V2", NpyType::void16}};
  for (const auto& [text, type] : types) {
    const NpyArray array = parse(file_of(1, dictionary(text, "(3,)"), std::string(3 * size_of(type), 'x')));
    EXPECT_EQ(array.type, type) << text;
  }
}

TEST(Npy, ReadsShapesOfAnyRank) {
  EXPECT_TRUE(parse(file_of(1, dictionary("<f4", "()"), bytes_of({7}))).shape.empty());
  EXPECT_EQ(parse(file_of(1, dictionary("<f4", "(0,)"), "")).shape, (std::vector<std::int64_t>{0}));
  EXPECT_EQ(parse(file_of(1, dictionary("<f4", "(2L, 1L)"), bytes_of({7, 8}))).shape,
            (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(parse(file_of(1, dictionary("<f4", "(9223372036854775807, 0)"), "")).data.size(), 0U);
}

TEST(Npy, ReadsKeysInAnyOrderAndQuotes) {
  const std::string text = " {\"shape\":(2,),\"fortran_order\" : True,'descr':\"<f4\"}   \n";
  EXPECT_EQ(elements<float>(parse(file_of(1, text, bytes_of({1, 2})))), (std::vector<float>{1, 2}));
}

TEST(Npy, TurnsColumnMajorIntoRowMajor) {
  const NpyArray matrix =
      parse(file_of(1, dictionary("<f4", "(2, 3)", "True"), bytes_of({1, 4, 2, 5, 3, 6})));
  EXPECT_EQ(elements<float>(matrix), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  const NpyArray cube =
      parse(file_of(1, dictionary("<f4", "(2, 1, 2, 2)", "True"), bytes_of({0, 4, 2, 6, 1, 5, 3, 7})));
  EXPECT_EQ(elements<float>(cube), (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(Npy, SwapsBigEndian) {
  EXPECT_EQ(elements<float>(parse(file_of(1, dictionary(">f4", "(1,)"), std::string("\x3f\xc0\0\0", 4)))),
            (std::vector<float>{1.5F}));
  const NpyArray complex =
      parse(file_of(1, dictionary(">c8", "(1,)"), std::string("\x3f\x80\0\0\x40\0\0\0", 8)));
  EXPECT_EQ(elements<float>(complex), (std::vector<float>{1, 2}));
}

TEST(Npy, HeaderIsAlignedAndReadsBack) {
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{}, {5}, {3, 4}, {1, 2, 3, 4}, std::vector<std::int64_t>(64, 1)}) {
    const std::string header = npy_header(NpyType::complex64, shape);
    EXPECT_EQ(header.size() % 64, 0U);
    std::size_t bytes = 8;
    for (const std::int64_t dimension : shape) bytes *= static_cast<std::size_t>(dimension);
    const NpyArray array = parse(header + std::string(bytes, 'x'));
    EXPECT_EQ(array.shape, shape);
    EXPECT_EQ(array.type, NpyType::complex64);
  }
}

struct HostileFile {
  std::string what;
  std::string content;
  std::string message;  ///< part of the error
};

TEST_F(NpyFileTest, RefusesHostileFiles) {
  const std::string good = dictionary("<f4", "(1,)");
  const std::string four(4, 'x');
  const auto with = [&](const std::string& descr, const std::string& shape) {
    return file_of(1, dictionary(descr, shape), four);
  };
  const std::vector<HostileFile> hostile{
      {"empty", "", "not an .npy file"},
      {"wrong magic", "PK\x03\x04 and so on", "not an .npy file"},
      {"magic alone", "\x93NUMPY", "ends before its format version"},
      {"future version", file_of(4, good, four), "format version 4.0"},
      {"negative version", file_of(-1, good, four), "format version 255.0"},
      {"no header length", std::string("\x93NUMPY\x02\0\x10", 9), "ends before the length of its header"},
      {"header longer than file", std::string("\x93NUMPY\x01\0\xff\xff{", 11),
       "announces a header of 65535 bytes"},
      {"header of 4 GiB", std::string("\x93NUMPY\x02\0\xff\xff\xff\xff{", 13),
       "announces a header of 4294967295 bytes"},
      {"header of 1 MiB", file_of(2, good + std::string(1 << 20, ' '), four), "at most 65536 are read"},
      {"truncated data", file_of(1, good, "xxx"), "4 bytes, but holds 3"},
      {"trailing garbage", file_of(1, good, "xxxxx"), "4 bytes, but holds 5"},
      {"huge shape", with("<f4", "(1099511627776,)"), "4398046511104 bytes, but holds 4"},
      {"overflowing shape", with("<f4", "(4294967296, 4294967296)"), "more than 2^63 bytes, but holds 4"},
      {"product wraps to 4", with("<f4", "(4294967297, 4294967296, 4294967296)"), "more than 2^63"},
      {"overflowing dimension", with("<f4", "(9223372036854775808,)"), "does not fit in 64 bits"},
      {"negative dimension", with("<f4", "(-1,)"), "negative dimension"},
      {"65 dimensions", with("<f4", "(" + std::string(65 * 2, '1') + ",)"), "does not fit"},
      {"number as shape", with("<f4", "(1)"), "','"},
      {"float dimension", with("<f4", "(1.0,)"), "malformed header"},
      {"open shape", with("<f4", "(1,"), "malformed header"},
      {"no type", with("<q4", "(1,)"), "dtype '<q4'"},
      {"orderless float", with("|f4", "(1,)"), "dtype '|f4'"},
      {"empty dtype", with("", "(1,)"), "dtype ''"},
      {"non-ASCII dtype", with("<f4\xc3\xa9\x1b[31m", "(1,)"), R"(dtype '<f4\xc3\xa9\x1b[31m')"},
      {"no dictionary", file_of(1, "[1, 2, 3]", four), "malformed header"},
      {"empty dictionary", file_of(1, "{}", four), "lacks one of the keys"},
      {"missing key", file_of(1, "{'descr': '<f4', 'shape': (1,)}", four), "lacks one of the keys"},
      {"key twice", file_of(1, "{'descr': '<f4', 'descr': '<f4'}", four), "'descr' twice"},
      {"unknown key", file_of(1, "{'descr': '<f4', 'payload': True}", four), "unknown key 'payload'"},
      {"no quote", file_of(1, "{'descr", four), "malformed header"},
      {"wrong boolean", file_of(1, dictionary("<f4", "(1,)", "Maybe"), four), "True or False"},
      {"text after header", file_of(1, good + "import os", four), "the end of the header"},
      {"zero byte after header", file_of(1, good + std::string(1, '\0'), four), "the end of the header"},
  };
  for (const HostileFile& file : hostile) {
    SCOPED_TRACE(file.what);
    write("hostile.npy", file.content);
    try {
      (void)load_npy(path("hostile.npy"));
      ADD_FAILURE() << "was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::io);
      const std::string message = error.what();
      EXPECT_EQ(message.find(path("hostile.npy").string() + ": "), 0U) << message;
      EXPECT_NE(message.find(file.message), std::string::npos) << message;
    }
    EXPECT_THROW((void)parse(file.content), Error);
  }
}

TEST_F(NpyFileTest, TypesOfNoUseAreNoDamage) {
  const auto expect_unsupported = [&](const std::string& content, const std::string& part) {
    write("sound.npy", content);
    try {
      (void)load_npy(path("sound.npy"));
      ADD_FAILURE() << part << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
      const std::string message = error.what();
      EXPECT_EQ(message.find(path("sound.npy").string() + ": "), 0U) << message;
      EXPECT_NE(message.find(part), std::string::npos) << message;
    }
  };
  for (const char* type : {"<i4", ">i8", "|i1", "|b1", "|O", "<U7", "<M8[ns]", "<f16"}) {
    expect_unsupported(file_of(1, dictionary(type, "(0,)"), ""), "dtype '" + std::string(type) + "'");
  }
  expect_unsupported(file_of(1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (0,)}", ""),
                     "structured");
}

TEST_F(NpyFileTest, EveryTruncationIsRefused) {
  const std::string whole = npy_header(NpyType::f64, std::vector<std::int64_t>{2}) + std::string(16, 'x');
  EXPECT_NO_THROW((void)parse(whole));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THROW((void)parse(whole.substr(0, length)), Error) << length;
  }
}

TEST_F(NpyFileTest, SavesAtomically) {
  const std::vector<float> data{1, 2, 3, 4, 5, 6};
  save("a.npy", NpyType::f32, {2, 3}, data);
  EXPECT_EQ(CommandTest::elements<float>("a.npy"), data);
  save("a.npy", NpyType::f32, {3}, std::vector<float>{7, 8, 9});
  EXPECT_EQ(CommandTest::elements<float>("a.npy"), (std::vector<float>{7, 8, 9}));
  EXPECT_EQ(files(), 1U);

  std::filesystem::create_directory(path("directory"));
  for (const char* unwritable : {"directory", "missing/a.npy"}) {
    EXPECT_THROW(save(unwritable, NpyType::f32, {6}, data), Error) << unwritable;
  }
  EXPECT_EQ(files(), 2U);
}

TEST_F(NpyFileTest, MissingFilesAndDirectoriesAreErrors) {
  EXPECT_THROW((void)load_npy(path("none.npy")), Error);
  EXPECT_THROW((void)load_npy(path("")), Error);
}

}  // namespace
}  // namespace kronsparse::cli
