// kronsparse demo: a Monarch layer and a few patterns, checked, timed against
// the dense product, shown as a table and a picture.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "arguments.hpp"
#include "commands.hpp"
#include "demo_picture.hpp"
#include "files.hpp"
#include "kronsparse/chain.hpp"
#include "kronsparse/error.hpp"
#include "kronsparse/plan.hpp"
#include "mirror.hpp"
#include "terminal.hpp"
#include "timing.hpp"
#include "verify.hpp"

namespace kronsparse::cli {
namespace {

struct Options {
  std::string out = ".";
  std::string device;
  bool quick = false;
};

struct Layer {
  std::string title;
  Chain chain;
  DType dtype;
  Layout layout;
};

std::vector<Layer> demo_layers(const Chain& monarch) {
  using enum Layout;
  return {{"Monarch 4096 x 4096", monarch, DType::f32, batch_first},
          {"Monarch 4096 x 4096", monarch, DType::f32, batch_last},
          {"Monarch 4096 x 4096", monarch, DType::f16, batch_first},
          {"16x64x64x1, block-diagonal", Chain{{16, 64, 64, 1}}, DType::f32, batch_first},
          {"1x192x192x16", Chain{{1, 192, 192, 16}}, DType::f32, batch_first},
          {"4x64x256x4, 4096 to 1024", Chain{{4, 64, 256, 4}}, DType::f32, batch_last},
          {"1x256x64x16, 1024 to 4096", Chain{{1, 256, 64, 16}}, DType::f16, batch_first}};
}

/// The layer's median time on random data, after a comparison with the reference; `failure` gets the reason
/// if the result is wrong.
double checked_time(const Layer& layer, std::int64_t batch, Device device, const TimingOptions& timing,
                    std::string& failure) {
  constexpr double reference_flops = 5e7;
  const Problem problem{.chain = layer.chain, .batch = batch, .dtype = layer.dtype, .layout = layer.layout};
  Inputs inputs = random_inputs(problem, 1);
  Tensor y = output_tensor(problem);
  DeviceOperands staged(inputs, y, device);
  const Plan plan(problem, staged.values(), device);
  staged.make_workspace(plan);
  staged.clear_output();
  plan.run(staged.operands());
  staged.fetch_output();
  const Expected expected(problem, inputs, choose_sample(problem, reference_flops, 1));
  if (const Expected::Comparison comparison = expected.compare(y); !comparison.pass) {
    failure = fmt::format("{}: {}: {}\n  reproduce: kronsparse check {} --device {}{}", plan.implementation(),
                          problem.to_string(), comparison.failure, shell_quoted(problem.to_string()),
                          device.to_string(), forcing(plan, ""));
  }
  return Timing([&] { plan.run(staged.operands()); }, timing, device).median();
}

Layer dense_layer(const Layer& layer) {
  return {layer.title, Chain{{1, layer.chain.rows(), layer.chain.cols(), 1}}, layer.dtype, layer.layout};
}

/// A batch that the dense product should finish in a quarter of a second, so that the whole stays under a
/// minute.
std::int64_t choose_batch(const Layer& layer, Device device, bool quick) {
  const bool on_cpu = device.backend == Backend::cpu;
  std::int64_t batch = on_cpu ? (quick ? 64 : 1024) : (quick ? 1024 : 8192);
  const Chain dense = dense_layer(layer).chain;
  const auto predicted = [&] {
    const Problem problem{.chain = dense[0], .batch = batch, .dtype = layer.dtype, .layout = layer.layout};
    return candidates(problem, device).front().predicted_seconds;
  };
  while (batch > 16 && predicted() > 0.25) batch /= 2;
  return batch;
}

ExitCode run_demo(const Options& options) {
  const std::filesystem::path picture = std::filesystem::path(options.out) / "kronsparse-demo.svg";
  std::error_code error;
  std::filesystem::create_directories(options.out, error);
  if (error)
    throw Error(ErrorCode::io, fmt::format("{}: cannot be created: {}", options.out, error.message()));

  const Device device = choose_device(options.device, "");
  const std::string where = fmt::format("{}: {}", device.to_string(), describe(device).description);
  if (device.backend == Backend::cpu) warn_if_busy();
  const Chain monarch = Chain::monarch(4096, 4096, 64);
  const std::vector<Layer> layers = demo_layers(monarch);
  const std::int64_t batch = choose_batch(layers.front(), device, options.quick);
  const TimingOptions timing = options.quick ? TimingOptions{.min_seconds = 0.05, .min_runs = 3}
                                             : TimingOptions{.min_seconds = 0.5, .min_runs = 5};
  using enum Table::Align;
  Table table({{"layer"},
               {"dtype"},
               {"layout"},
               {"size", right},
               {"values", right},
               {"dense", right},
               {"kronsparse", right},
               {"speed-up", right},
               {"result"}});
  std::vector<LayerBars> bars;
  std::vector<std::string> failures;
  {
    Progress progress(2 * layers.size());
    for (const Layer& layer : layers) {
      const std::string what = fmt::format("{} {} {}", layer.title, name(layer.dtype), name(layer.layout));
      std::string failure;
      progress.step(what);
      const double sparse = checked_time(layer, batch, device, timing, failure);
      progress.step(what + ", dense");
      const double dense = checked_time(dense_layer(layer), batch, device, timing, failure);
      const double share = static_cast<double>(layer.chain.nnz()) / (static_cast<double>(layer.chain.rows()) *
                                                                     static_cast<double>(layer.chain.cols()));
      table.add_row({layer.title, std::string(name(layer.dtype)), std::string(name(layer.layout)),
                     fmt::format("{} x {}", layer.chain.rows(), layer.chain.cols()),
                     fmt::format("{:.3g}%", 100 * share), duration_text(dense), duration_text(sparse),
                     fmt::format("{:.1f}x", dense / sparse),
                     failure.empty() ? coloured("right", Colour::green, stdout)
                                     : coloured("WRONG", Colour::red, stdout)});
      bars.push_back(
          {layer.title, fmt::format("{}, {}", name(layer.dtype), name(layer.layout)), dense, sparse});
      if (!failure.empty()) failures.push_back(std::move(failure));
    }
  }
  fmt::print("{}, batch {}\n\n{}\n", where, batch, table.render(stdout));
  fmt::print(
      "dense: the full matrix of the same size, pattern 1xMxNx1, by kronsparse's own best implementation.\n"
      "Medians. Every result was compared with the reference, within a bound from the theory of rounding.\n");
  for (const std::string& failure : failures) print_to_stderr(fmt::format("kronsparse: {}\n", failure));
  if (!failures.empty()) return ExitCode::wrong_result;
  write_atomically(picture, draw_demo(monarch, bars, fmt::format("Batch of {}; {}", batch, where)));
  fmt::print("picture: {}\n", picture.string());
  return ExitCode::ok;
}

}  // namespace

void add_demo_command(Arguments& arguments, ExitCode& exit_code) {
  auto options = std::make_shared<Options>();
  const Command command =
      arguments.add_command("demo", "Multiply, check, time and picture a Monarch layer and a few patterns");
  command.option("--out", options->out, "Folder for the picture, kronsparse-demo.svg")
      .type_name("DIR")
      .show_default();
  command.option("--device", options->device, device_help);
  command.flag("--quick", options->quick, "Take a smaller batch and fewer runs: a few seconds");
  command.footer(
      R"(Computes a 4096 x 4096 layer that is the product of two Kronecker-sparse factors, and a few single
patterns. Results are compared with the reference, times with those of a dense product of the same
size. Takes less than a minute on two cores.)");
  command.callback([options, &exit_code] { exit_code = run_demo(*options); });
}

}  // namespace kronsparse::cli
