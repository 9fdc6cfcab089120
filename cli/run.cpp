// kronsparse run: multiplies .npy by .npy.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "arguments.hpp"
#include "commands.hpp"
#include "kronsparse/buffer.hpp"
#include "kronsparse/error.hpp"
#include "kronsparse/plan.hpp"
#include "mirror.hpp"
#include "npy.hpp"
#include "tensor.hpp"
#include "terminal.hpp"

namespace kronsparse::cli {
namespace {

struct Options {
  std::string pattern;
  std::vector<std::string> values;
  std::string x;
  std::string g;
  std::string bias;
  std::string out;
  std::string layout = "batch_first";
  std::string operation = "multiply";
  std::string activation = "none";
  std::string mode = "fp32";
  std::string dtype;
  std::string device;
  std::string implementation;
  bool quiet = false;
};

[[noreturn]] void mismatch(const std::string& message) { throw Error(ErrorCode::size_mismatch, message); }

/// The files of one multiplication, and the problem that they make.
class Job {
 public:
  explicit Job(const Options& options) : options_(options) {
    problem_.layout = parse_layout(options.layout);
    problem_.operation = parse_operation(options.operation);
    problem_.activation = parse_activation(options.activation);
    problem_.mode = parse_mode(options.mode);
    check_which_files();
    x_ = load("--x", options.x);
    if (gradient()) g_ = load("--g", options.g);
    for (const std::string& path : options.values) values_.push_back(load("--values", path));
    if (!options.bias.empty()) bias_ = load("--bias", options.bias);
    problem_.bias = bias_.has_value();
    problem_.dtype = dtype_of_file("--x", *x_);
    set_chain();
    set_batch();
    problem_.validate();
  }

  [[nodiscard]] const Problem& problem() const noexcept { return problem_; }

  /// The result, and how it came about.
  struct Result {
    Tensor y;
    double seconds;
    std::string implementation;
  };
  [[nodiscard]] Result run(Device device) {
    Result result{output_tensor(problem_), 0, {}};
    std::vector<Mirror> values;
    std::vector<const void*> addresses;
    for (NpyArray& one : values_) {
      values.emplace_back(one.data, device);
      addresses.push_back(values.back().data());
    }
    const Mirror x = mirror(x_, device);
    const Mirror g = mirror(g_, device);
    const Mirror bias = mirror(bias_, device);
    Mirror y(result.y, device);
    const Plan plan(problem_, addresses, device, options_.implementation);
    const Buffer workspace(plan.workspace_bytes({problem_.batch}), device);
    Timer timer(device);
    timer.mark();
    plan.run({.x = x.data(),
              .y = y.data(),
              .bias = bias.data(),
              .g = g.data(),
              .workspace = workspace.data(),
              .workspace_bytes = workspace.bytes()});
    timer.mark();
    result.seconds = timer.seconds().front();
    result.implementation = plan.implementation();
    y.download();
    return result;
  }

  [[nodiscard]] NpyType out_type() const { return x_->type; }
  [[nodiscard]] std::vector<std::int64_t> out_shape() const {
    if (gradient() && problem_.chain.size() > 1) return {problem_.chain.nnz()};
    if (gradient()) {
      const Pattern& p = problem_.pattern();
      return {p.a, p.b, p.c, p.d};
    }
    if (problem_.layout == Layout::batch_first) return {problem_.batch, problem_.out_features()};
    return {problem_.out_features(), problem_.batch};
  }

 private:
  [[nodiscard]] bool gradient() const noexcept { return problem_.operation == Operation::gradient; }

  static Mirror mirror(std::optional<NpyArray>& array, Device device) {
    return array ? Mirror(array->data, device) : Mirror();
  }

  void check_which_files() const {
    const auto wrong = [](const std::string& message) { throw Error(ErrorCode::invalid_argument, message); };
    if (gradient()) {
      if (options_.g.empty()) wrong("--operation gradient needs --g, the gradient of the product");
      if (options_.pattern.empty() && options_.values.size() < 2)
        wrong("--operation gradient needs --pattern");
      const bool is_chain = options_.values.size() > 1 || options_.pattern.find('*') != std::string::npos;
      if (!options_.values.empty() && !is_chain)
        wrong("--operation gradient of one factor reads no --values");
      if (options_.values.empty() && is_chain) wrong("--operation gradient of a chain needs its --values");
    } else {
      if (options_.values.empty()) wrong("--values is missing");
      if (!options_.g.empty()) wrong("--g belongs to --operation gradient");
    }
  }

  /// Loads an array and checks that its dtype is that of the files before it.
  NpyArray load(const std::string& option, const std::string& path) const {
    NpyArray array = load_npy(path);
    const DType dtype = dtype_of_file(option, array);
    if (x_ && dtype != dtype_of_file("--x", *x_)) {
      mismatch(fmt::format("{} holds {} and --x holds {}; all files must have one dtype", option, name(dtype),
                           name(dtype_of_file("--x", *x_))));
    }
    return array;
  }

  DType dtype_of_file(const std::string& option, const NpyArray& array) const {
    const std::optional<DType> asked =
        options_.dtype.empty() ? std::nullopt : std::optional(parse_dtype(options_.dtype));
    DType stored = DType::bf16;
    switch (array.type) {
      case NpyType::f16:
        stored = DType::f16;
        break;
      case NpyType::f32:
        stored = DType::f32;
        break;
      case NpyType::f64:
        stored = DType::f64;
        break;
      case NpyType::complex64:
        stored = DType::complex64;
        break;
      case NpyType::complex128:
        stored = DType::complex128;
        break;
      case NpyType::uint16:
      case NpyType::void16:
        if (!asked) {
          mismatch(fmt::format("{} holds 16-bit words ('{}'); say --dtype bf16 if they are bfloat16", option,
                               descr(array.type)));
        }
        break;
    }
    if (asked && *asked != stored) {
      mismatch(fmt::format("{} holds {} and --dtype says {}; files are not converted", option, name(stored),
                           name(*asked)));
    }
    return stored;
  }

  /// One --values for each factor, left factor first: arrays of (a, b, c, d), or flat ones beside --pattern.
  void set_chain() {
    std::vector<Pattern> factors;
    if (!options_.pattern.empty()) factors = Chain::parse(options_.pattern).factors();
    if (!factors.empty() && !values_.empty() && values_.size() != factors.size()) {
      mismatch(fmt::format("--values is given {} times and --pattern says {}, {} factors", values_.size(),
                           options_.pattern, factors.size()));
    }
    for (std::size_t factor = 0; factor < values_.size(); ++factor) {
      const std::vector<std::int64_t>& shape = values_[factor].shape;
      const std::string option =
          values_.size() == 1 ? "--values" : fmt::format("--values {}", options_.values[factor]);
      if (shape.size() == 4) {
        const Pattern stored{shape[0], shape[1], shape[2], shape[3]};
        stored.validate();
        if (options_.pattern.empty()) {
          factors.push_back(stored);
        } else if (stored != factors[factor]) {
          mismatch(fmt::format("{} has shape {} and --pattern says {}", option, shape_text(shape),
                               options_.pattern));
        }
      } else if (options_.pattern.empty()) {
        mismatch(fmt::format("{} has shape {}; give --pattern, or store values as an (a, b, c, d) array",
                             option, shape_text(shape)));
      } else if (const Pattern& p = factors[factor]; shape.size() != 1 || shape[0] != p.nnz()) {
        mismatch(fmt::format("{} has shape {}; pattern {} needs ({}, {}, {}, {}) or ({},)", option,
                             shape_text(shape), p.to_string(), p.a, p.b, p.c, p.d, p.nnz()));
      }
    }
    problem_.chain = Chain(std::move(factors));
  }

  void set_batch() {
    const std::size_t batch_axis = problem_.layout == Layout::batch_first ? 0 : 1;
    const auto need = [&](const std::string& option, const NpyArray& array, std::int64_t features) {
      if (array.shape.size() != 2 || array.shape[1 - batch_axis] != features) {
        mismatch(fmt::format(
            "{} has shape {}; {} with {} needs {}", option, shape_text(array.shape), name(problem_.layout),
            problem_.chain.to_string(),
            batch_axis == 0 ? fmt::format("(batch, {})", features) : fmt::format("({}, batch)", features)));
      }
    };
    need("--x", *x_, problem_.in_features());
    problem_.batch = x_->shape[batch_axis];
    if (g_) {
      need("--g", *g_, problem_.chain.rows());
      if (g_->shape[batch_axis] != problem_.batch) {
        mismatch(fmt::format("--g has batch {} and --x has batch {}", g_->shape[batch_axis], problem_.batch));
      }
    }
    if (bias_ && bias_->shape != std::vector{problem_.chain.rows()}) {
      mismatch(fmt::format("--bias has shape {}; pattern {} needs ({},)", shape_text(bias_->shape),
                           problem_.chain.to_string(), problem_.chain.rows()));
    }
  }

  const Options& options_;
  Problem problem_;
  std::optional<NpyArray> x_;
  std::optional<NpyArray> g_;
  std::vector<NpyArray> values_;
  std::optional<NpyArray> bias_;
};

void run_files(const Options& options) {
  Job job(options);
  const Problem& problem = job.problem();
  const Device device = choose_device(options.device, options.implementation);
  const Job::Result result = job.run(device);
  const std::vector<std::int64_t> shape = job.out_shape();
  save_npy(options.out, job.out_type(), shape, result.y.bytes());
  if (!options.quiet) {
    fmt::print("{}: {} {}, by {} on {} in {}\n  {}\n", options.out, name(problem.dtype), shape_text(shape),
               result.implementation, device.to_string(), duration_text(result.seconds), problem.to_string());
  }
}

}  // namespace

void add_run_command(Arguments& arguments, ExitCode& /*exit_code*/) {
  auto options = std::make_shared<Options>();
  const Command command =
      arguments.add_command("run", "Multiply arrays in .npy files and write the result to one");
  command
      .option(
          "--values", options->values,
          "File with the values of a factor: shape (a, b, c, d), or (a·b·c·d,) with --pattern. Given once\n"
          "for each factor, left factor first")
      .type_name("NPY");
  command
      .option("--x", options->x,
              "File with the input: shape (batch, features) in batch_first, (features, batch) in batch_last")
      .type_name("NPY")
      .required();
  command
      .option("--out", options->out,
              "File for the result; an older one is replaced once the result is complete")
      .type_name("NPY")
      .required();
  command
      .option("--pattern", options->pattern,
              "Pattern, as in 4x64x64x16, or several joined by '*' (default: the shapes of --values)")
      .type_name("PATTERN");
  command
      .option("--layout", options->layout,
              "Layout of the batch: batch_first (y = x K^T) or batch_last (y = K x)")
      .show_default();
  command
      .option(
          "--operation", options->operation,
          "multiply: act(K x + bias); transposed: K^T x; adjoint: K^H x; gradient: that of the values, from\n"
          "--x and --g, for a chain those of all factors one after the other")
      .show_default();
  command
      .option("--g", options->g,
              "gradient only: file with the gradient of K x; its features are the rows of K")
      .type_name("NPY");
  command.option("--bias", options->bias, "multiply only: file with a vector, one element for each row of K")
      .type_name("NPY");
  command
      .option("--activation", options->activation,
              "multiply only: activation, one of none, relu, gelu, gelu_tanh, silu")
      .show_default();
  command.option("--mode", options->mode, "How f32 may be computed: fp32, ieee or tf32").show_default();
  command.option("--dtype", options->dtype, "Only bf16, for files that hold its bits as uint16 or '<V2'");
  command.option("--device", options->device, device_help);
  command.option("--impl", options->implementation,
                 "Name of the implementation or family to use for every factor (see kronsparse info)");
  command.flag("--quiet", options->quiet, "Print nothing on success");
  command.footer(R"(All files have one dtype: f2, f4, f8, c8, c16, or uint16/'<V2' bits with --dtype bf16.
Row- or column-major, little- or big-endian; the result is row-major, little-endian.

Examples:
  kronsparse run --values values.npy --x x.npy --out y.npy
  kronsparse run --values values.npy --x x.npy --out y.npy --bias bias.npy --activation gelu
  kronsparse run --values left.npy --values right.npy --x x.npy --out y.npy
  kronsparse run --operation gradient --pattern 4x64x64x16 --x x.npy --g g.npy --out dvalues.npy)");
  command.callback([options] { run_files(*options); });
}

}  // namespace kronsparse::cli
