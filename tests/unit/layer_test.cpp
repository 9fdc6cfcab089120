// Plans of chains: steps, workspaces, values that are kept and values that are read at each run.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "expect_error.hpp"
#include "kronsparse/buffer.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse {
namespace {

/// Random operands of a chain in f64, and what must come out, by products with dense matrices.
struct Layer {
  explicit Layer(const std::string& chain_text) : chain(Chain::parse(chain_text)) {
    std::mt19937_64 random(7);
    std::uniform_int_distribution<int> small(-3, 3);
    for (const Pattern& factor : chain.factors()) {
      values.emplace_back(static_cast<std::size_t>(factor.nnz()));
      for (double& value : values.back()) value = small(random);
    }
    for (const auto& one : values) addresses.push_back(one.data());
  }

  [[nodiscard]] Problem problem(const std::string& words = "f64 batch_first B=3") const {
    return Problem::parse(words + " " + chain.to_string());
  }

  /// The product of x with factors [first, end), one sample after the other.
  [[nodiscard]] std::vector<double> product(std::vector<double> x, std::int64_t batch,
                                            std::size_t first = 0) const {
    for (std::size_t f = chain.size(); f-- > first;) {
      const Pattern& p = chain[f];
      std::vector<double> y(static_cast<std::size_t>(batch * p.rows()));
      for (std::int64_t n = 0; n < batch; ++n)
        for (std::int64_t i = 0; i < p.a; ++i)
          for (std::int64_t k = 0; k < p.b; ++k)
            for (std::int64_t l = 0; l < p.c; ++l)
              for (std::int64_t j = 0; j < p.d; ++j)
                y[static_cast<std::size_t>(n * p.rows() + (i * p.b + k) * p.d + j)] +=
                    values[f][static_cast<std::size_t>(((i * p.b + k) * p.c + l) * p.d + j)] *
                    x[static_cast<std::size_t>(n * p.cols() + (i * p.c + l) * p.d + j)];
      x = std::move(y);
    }
    return x;
  }

  [[nodiscard]] std::vector<double> input(std::int64_t batch) const {
    std::vector<double> x(static_cast<std::size_t>(batch * chain.cols()));
    for (std::size_t at = 0; at < x.size(); ++at) x[at] = static_cast<double>(at % 7) - 3;
    return x;
  }

  Chain chain;
  std::vector<std::vector<double>> values;
  std::vector<const void*> addresses;
};

std::vector<double> run(const Plan& plan, const Layer& layer, std::int64_t batch, Operands operands) {
  const std::vector<double> x = layer.input(batch);
  std::vector<double> y(static_cast<std::size_t>(batch * layer.chain.rows()), -1e300);
  operands.x = x.data();
  operands.y = y.data();
  const Buffer workspace(plan.workspace_bytes({.size = batch}, operands));
  operands.workspace = workspace.data();
  operands.workspace_bytes = workspace.bytes();
  plan.run({.size = batch}, operands);
  return y;
}

const std::vector<std::string> chains = {"2x3x4x5", "1x6x4x2*2x4x3x1", "1x2x2x4*2x2x2x2*4x2x2x1",
                                         "1x3x2x6*2x6x5x1*1x10x1x1*1x1x4x1"};

TEST(Layer, OnePlanServesEveryBatch) {
  for (const std::string& text : chains) {
    const Layer layer(text);
    const Plan reading(layer.problem());
    const Plan keeping(layer.problem(), std::span(layer.addresses));
    PackedValues packed(reading);
    for (const std::int64_t batch : {3, 1, 17, 64, 2, 3, 17}) {
      SCOPED_TRACE(text + " batch " + std::to_string(batch));
      const std::vector<double> expected = layer.product(layer.input(batch), batch);
      EXPECT_EQ(run(reading, layer, batch, {.values = layer.addresses.data()}), expected);
      EXPECT_EQ(run(keeping, layer, batch, {}), expected);
      packed.prepare(reading, {.size = batch}, layer.addresses);
      EXPECT_TRUE(packed.is_ready(reading, {.size = batch}));
      EXPECT_EQ(run(reading, layer, batch, {.values = layer.addresses.data(), .packed = &packed}), expected);
    }
  }
}

TEST(Layer, AChangedValueIsSeenByTheNextRun) {
  Layer layer("1x6x4x2*2x4x3x1");
  const Plan plan(layer.problem());
  for (int turn = 0; turn < 3; ++turn) {
    layer.values[static_cast<std::size_t>(turn) % 2][1] += 5;  // past every counter
    EXPECT_EQ(run(plan, layer, 3, {.values = layer.addresses.data()}), layer.product(layer.input(3), 3));
  }
}

TEST(Layer, NewValuesArePackedForEveryPreparedBatch) {
  Layer layer("1x6x4x2*2x4x3x1");
  Plan plan(layer.problem(), std::span(layer.addresses));
  plan.prepare({.size = 64}, layer.addresses);
  layer.values[0][3] = 11;
  plan.set_values(layer.addresses);
  for (const std::int64_t batch : {3, 64, 5})
    EXPECT_EQ(run(plan, layer, batch, {}), layer.product(layer.input(batch), batch)) << batch;
}

TEST(Layer, PackedCopiesStayWithinThreeTimesTheValues) {
  const Layer layer("1x64x64x8*8x64x64x1");
  const Plan plan(layer.problem());
  const Plan back(layer.problem("adjoint f64 batch_first B=3"));
  PackedValues packed(plan);
  for (std::int64_t batch = 1; batch < 200; batch += 3) {
    packed.prepare(plan, {.size = batch}, layer.addresses);
    packed.prepare(back, {.size = batch}, layer.addresses);
  }
  EXPECT_LE(packed.bytes(), 3 * static_cast<std::size_t>(layer.chain.nnz()) * sizeof(double));
}

TEST(Layer, TheGradientOfAChainIsThatOfItsFactors) {
  for (const std::string& text : chains) {
    SCOPED_TRACE(text);
    const Layer layer(text);
    const std::int64_t batch = 4;
    const std::vector<double> x = layer.input(batch);
    std::vector<double> g(static_cast<std::size_t>(batch * layer.chain.rows()));
    for (std::size_t at = 0; at < g.size(); ++at) g[at] = static_cast<double>(at % 5) - 2;
    // <g, K x> is linear in each value: a step of 1 in it changes the product by its derivative.
    const auto inner = [&](const Layer& changed) {
      const std::vector<double> y = changed.product(x, batch);
      double sum = 0;
      for (std::size_t at = 0; at < y.size(); ++at) sum += g[at] * y[at];
      return sum;
    };
    const Problem problem = layer.problem("gradient f64 batch_first B=4");
    const Plan plan(problem);
    const Plan forward(layer.problem("f64 batch_first B=4"));
    std::vector<double> all(static_cast<std::size_t>(layer.chain.nnz()), -1e300);
    std::vector<double> grad_x(x.size(), -1e300);
    const Buffer intermediates(plan.intermediate_bytes({.size = batch}));
    static_cast<void>(run(forward, layer, batch,
                          {.values = layer.addresses.data(), .intermediates = intermediates.data()}));
    for (const bool has_intermediates : {false, true}) {
      Operands operands{.x = x.data(),
                        .y = all.data(),
                        .g = g.data(),
                        .values = layer.addresses.data(),
                        .grad_x = grad_x.data()};
      if (has_intermediates) operands.intermediates = intermediates.data();
      const Buffer workspace(plan.workspace_bytes({.size = batch}, operands));
      operands.workspace = workspace.data();
      operands.workspace_bytes = workspace.bytes();
      plan.run(operands);
      std::size_t at = 0;
      for (std::size_t factor = 0; factor < layer.chain.size(); ++factor)
        for (std::size_t value = 0; value < layer.values[factor].size(); ++value, ++at) {
          Layer changed = layer;
          changed.values[factor][value] += 1;
          EXPECT_EQ(all[at], inner(changed) - inner(layer)) << "factor " << factor << " value " << value;
        }
      // <g, K e> for every unit vector e.
      for (std::int64_t feature = 0; feature < layer.chain.cols(); ++feature) {
        std::vector<double> unit(x.size());
        unit[static_cast<std::size_t>(feature)] = 1;
        const std::vector<double> y = layer.product(unit, batch);
        double sum = 0;
        for (std::size_t row = 0; row < y.size(); ++row) sum += g[row] * y[row];
        EXPECT_EQ(grad_x[static_cast<std::size_t>(feature)], sum) << feature;
      }
    }
    // One of them alone.
    std::vector<std::vector<double>> separate;
    for (const auto& one : layer.values) separate.emplace_back(one.size(), -1e300);
    for (std::size_t wanted = 0; wanted < layer.chain.size(); ++wanted) {
      std::vector<void*> gradients(layer.chain.size(), nullptr);
      gradients[wanted] = separate[wanted].data();
      Operands operands{
          .x = x.data(), .g = g.data(), .values = layer.addresses.data(), .gradients = gradients.data()};
      const Buffer workspace(plan.workspace_bytes({.size = batch}, operands));
      operands.workspace = workspace.data();
      operands.workspace_bytes = workspace.bytes();
      plan.run(operands);
    }
    std::vector<double> together;
    for (const auto& one : separate) together.insert(together.end(), one.begin(), one.end());
    EXPECT_EQ(together, all);
  }
}

TEST(Layer, ThreadsShareAPlan) {
  const Layer layer("1x6x4x2*2x4x3x1");
  const Plan plan(layer.problem());
  PackedValues packed(plan);
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number)
    threads.emplace_back([&, number] {
      for (std::int64_t batch = 1; batch < 60; ++batch) {
        const std::int64_t size = 1 + (batch * 7 + number) % 50;
        packed.prepare(plan, {.size = size}, layer.addresses);
        EXPECT_EQ(run(plan, layer, size, {.values = layer.addresses.data(), .packed = &packed}),
                  layer.product(layer.input(size), size));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Layer, SaysWhatIsWrongWithOperands) {
  const Layer layer("1x6x4x2*2x4x3x1");
  const Plan plan(layer.problem());
  const std::vector<double> x = layer.input(3);
  std::vector<double> y(static_cast<std::size_t>(3 * layer.chain.rows()));
  Operands operands{.x = x.data(), .y = y.data()};
  expect_beginning(ErrorCode::bad_pointer, "values: null given", [&] { plan.run(operands); });
  operands.values = layer.addresses.data();
  expect_beginning(ErrorCode::bad_pointer, "workspace: null given", [&] { plan.run(operands); });
  const Buffer workspace(plan.workspace_bytes({.size = 3}, operands));
  operands.workspace = static_cast<std::byte*>(workspace.data()) + 8;
  operands.workspace_bytes = workspace.bytes();
  expect_beginning(ErrorCode::bad_pointer, "workspace: address", [&] { plan.run(operands); });
  operands.workspace = workspace.data();
  operands.workspace_bytes = workspace.bytes() - 1;
  expect_beginning(ErrorCode::size_mismatch, "workspace_bytes", [&] { plan.run(operands); });
  operands.workspace_bytes = workspace.bytes();
  expect_beginning(ErrorCode::invalid_argument, "batch: -1 given", [&] { plan.run({.size = -1}, operands); });
  std::vector<const void*> wrong = layer.addresses;
  wrong[1] = nullptr;
  operands.values = wrong.data();
  expect_beginning(ErrorCode::bad_pointer, "values[1]: null", [&] { plan.run(operands); });
  expect_beginning(ErrorCode::size_mismatch, "values: 1 addresses given, must be 2",
                   [&] { (void)Plan(layer.problem(), std::span(layer.addresses).first(1)); });
  const PackedValues other(Plan(Layer("2x3x4x5").problem()));
  operands.packed = &other;
  expect_beginning(ErrorCode::size_mismatch, "packed: values of f64 2x3x4x5 on cpu given",
                   [&] { plan.run(operands); });
}

TEST(Layer, AMovedFromPlanSaysSo) {
  const Layer layer("2x3x4x5");
  Plan plan(layer.problem(), std::span(layer.addresses));
  const Plan moved = std::move(plan);
  // NOLINTBEGIN(bugprone-use-after-move)
  const auto expect_gone = [](auto&& call) {
    expect_beginning(ErrorCode::invalid_argument, "plan: used after it was moved from", call);
  };
  expect_gone([&] { (void)plan.problem(); });
  expect_gone([&] { (void)plan.device(); });
  expect_gone([&] { (void)plan.implementation(); });
  expect_gone([&] { (void)plan.implementation({}); });
  expect_gone([&] { (void)plan.packed_bytes(); });
  expect_gone([&] { (void)plan.workspace_bytes({}); });
  expect_gone([&] { (void)plan.intermediate_bytes({}); });
  expect_gone([&] { (void)plan.predicted_seconds({}); });
  expect_gone([&] { (void)plan.predicted_packing_seconds({}); });
  expect_gone([&] { plan.run({}); });
  expect_gone([&] { plan.set_values(layer.addresses); });
  expect_gone([&] { plan.prepare({}, layer.addresses); });
  expect_gone([&] { (void)PackedValues(plan); });
  // NOLINTEND(bugprone-use-after-move)
}

}  // namespace
}  // namespace kronsparse
