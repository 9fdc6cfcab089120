// Runs a fuzz target where libFuzzer is not available (gcc): replays the
// corpus, then feeds deterministic mutations of it. No coverage guidance.
//
// Understands the libFuzzer flags -runs=N, -max_total_time=SECONDS, -seed=N,
// -max_len=BYTES and -dict=FILE, so that one command line works for both; the
// remaining arguments are corpus files or directories.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
// Null unless a sanitizer runtime is linked in.
// NOLINTNEXTLINE(bugprone-reserved-identifier)
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

using Input = std::vector<std::uint8_t>;
constexpr const char* crash_file = "crash-input";

struct Options {
  std::uint64_t runs = 10000;
  double max_total_time = 0;  // 0: no limit
  std::uint64_t seed = 1;
  std::size_t max_len = 4096;
  std::string dictionary;
  std::vector<std::filesystem::path> corpus;
};

Options parse_arguments(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const std::string value(argument.substr(std::min(argument.find('=') + 1, argument.size())));
    if (argument.starts_with("-runs=")) {
      options.runs = std::stoull(value);
    } else if (argument.starts_with("-max_total_time=")) {
      options.max_total_time = std::stod(value);
    } else if (argument.starts_with("-seed=")) {
      options.seed = std::stoull(value);
    } else if (argument.starts_with("-max_len=")) {
      options.max_len = std::stoull(value);
    } else if (argument.starts_with("-dict=")) {
      options.dictionary = value;
    } else if (argument.starts_with("-")) {
      std::fprintf(stderr, "unknown flag %s\n", argv[i]);
      std::exit(2);
    } else {
      options.corpus.emplace_back(argument);
    }
  }
  return options;
}

Input read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<Input> read_corpus(const std::vector<std::filesystem::path>& paths) {
  std::vector<std::filesystem::path> files;
  for (const auto& path : paths) {
    if (std::filesystem::is_directory(path)) {
      for (const auto& entry : std::filesystem::directory_iterator(path)) files.push_back(entry.path());
    } else {
      files.push_back(path);
    }
  }
  std::sort(files.begin(), files.end());  // directory order is not deterministic
  std::vector<Input> corpus{Input{}};
  std::transform(files.begin(), files.end(), std::back_inserter(corpus), read_file);
  return corpus;
}

/// Lines "token" with \xNN, \\ and \" inside; anything else is a comment.
std::vector<Input> read_dictionary(const std::string& path) {
  std::vector<Input> tokens;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.size() < 2 || line.front() != '"' || line.back() != '"') continue;
    Input token;
    for (std::size_t i = 1; i + 1 < line.size(); ++i) {
      if (line[i] == '\\' && line[i + 1] == 'x') {
        token.push_back(static_cast<std::uint8_t>(std::stoul(line.substr(i + 2, 2), nullptr, 16)));
        i += 3;
      } else {
        if (line[i] == '\\') ++i;
        token.push_back(static_cast<std::uint8_t>(line[i]));
      }
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

class Mutator {
 public:
  Mutator(std::vector<Input> corpus, std::vector<Input> dictionary, std::uint64_t seed, std::size_t max_len)
      : corpus_(std::move(corpus)), dictionary_(std::move(dictionary)), random_(seed), max_len_(max_len) {}

  Input next() {
    Input input = pick(corpus_);
    for (std::size_t edits = 1 + below(4); edits > 0; --edits) edit(input);
    input.resize(std::min(input.size(), max_len_));
    return input;
  }

 private:
  void edit(Input& input) {
    const std::size_t at = below(input.size() + 1);
    const auto position = input.begin() + static_cast<std::ptrdiff_t>(at);
    const std::size_t count = below(std::min<std::size_t>(input.size() - at, 16) + 1);
    const auto end = position + static_cast<std::ptrdiff_t>(count);
    switch (below(6)) {
      case 0:  // flip a bit
        if (at < input.size()) *position ^= static_cast<std::uint8_t>(1U << below(8));
        break;
      case 1:  // replace a byte
        if (at < input.size()) *position = static_cast<std::uint8_t>(below(256));
        break;
      case 2:
        input.erase(position, end);
        break;
      case 3:  // repeat a piece
        insert(input, at, Input(position, end));
        break;
      case 4:
        if (!dictionary_.empty()) insert(input, at, pick(dictionary_));
        break;
      default: {  // go on as another seed does
        const Input& other = pick(corpus_);
        const auto tail = other.begin() + static_cast<std::ptrdiff_t>(below(other.size() + 1));
        input.erase(position, input.end());
        input.insert(input.end(), tail, other.end());
      }
    }
  }

  static void insert(Input& input, std::size_t at, const Input& piece) {
    input.insert(input.begin() + static_cast<std::ptrdiff_t>(at), piece.begin(), piece.end());
  }
  const Input& pick(const std::vector<Input>& from) { return from[below(from.size())]; }
  // Not std::uniform_int_distribution: its results differ between libraries.
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random_() % bound); }

  std::vector<Input> corpus_;
  std::vector<Input> dictionary_;
  std::mt19937_64 random_;
  std::size_t max_len_;
};

Input current;  // what the target is working on, for the handlers below

void save_current() {
  if (std::FILE* file = std::fopen(crash_file, "wb")) {
    std::fwrite(current.data(), 1, current.size(), file);
    std::fclose(file);
  }
  std::fprintf(stderr, "the input is in %s (%zu bytes)\n", crash_file, current.size());
}

extern "C" void on_signal(int number) {
  save_current();  // the process is lost anyway: a deadlock in stdio is the worst that can happen
  std::signal(number, SIG_DFL);
  std::raise(number);
}

void run_one(const Input& input) {
  current = input;
  try {
    LLVMFuzzerTestOneInput(current.data(), current.size());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "the target let an exception escape: %s\n", error.what());
    std::abort();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse_arguments(argc, argv);
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(save_current);
  for (int number : {SIGABRT, SIGFPE, SIGILL}) std::signal(number, on_signal);
  // The sanitizers report these two better themselves.
  if (__sanitizer_set_death_callback == nullptr) {
    for (int number : {SIGSEGV, SIGBUS}) std::signal(number, on_signal);
  }

  const std::vector<Input> corpus = read_corpus(options.corpus);
  for (const Input& input : corpus) run_one(input);

  Mutator mutator(corpus, read_dictionary(options.dictionary), options.seed, options.max_len);
  const auto start = std::chrono::steady_clock::now();
  std::uint64_t runs = 0;
  for (; runs < options.runs; ++runs) {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (options.max_total_time > 0 && elapsed.count() > options.max_total_time) break;
    run_one(mutator.next());
  }
  std::printf("%zu corpus inputs and %llu mutations (seed %llu): no failure\n", corpus.size(),
              static_cast<unsigned long long>(runs), static_cast<unsigned long long>(options.seed));
  return 0;
}
