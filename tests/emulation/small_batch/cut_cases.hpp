// Cases for the small-batch kernels in batch_first, which can cut a problem in many ways.
#pragma once

#include <functional>
#include <initializer_list>
#include <iterator>
#include <string>
#include <vector>

#include "cases.hpp"
#include "cuda/small_batch/cut_choice.hpp"

namespace kronsparse::emulation {

/// Half of the cases have strides, bias or an activation; some are transposed.
inline constexpr std::int64_t any_terms[] = {1, 3, 8, 12, 50, 64, 100, 264};
template <std::size_t Rows, std::size_t Products, std::size_t Terms = std::size(any_terms)>
ProductCase small_batch_case(DType dtype, Picker& pick, const std::int64_t (&rows)[Rows],
                             const std::int64_t (&products)[Products],
                             const std::int64_t (&terms)[Terms] = any_terms) {
  const std::int64_t blocks[] = {1, 2, 3};
  const std::int64_t batches[] = {1, 7, 8, 20, 33, 64, 64};
  ProductCase one;
  Problem& problem = one.problem;
  problem.dtype = dtype;
  problem.layout = Layout::batch_first;
  pick_sizes(
      problem, 1.5e6,
      [&] {
        return Pattern{pick.of(blocks), pick.of(rows), pick.of(terms), pick.of(products)};
      },
      [&] { return pick.of(batches); });
  pick_operation(problem, pick);
  pick_strides(problem, pick);
  pick_surroundings(one, pick);
  return one;
}

/// Runs cases by cuts that the test chooses; `How` describes a run. A kernel has choices(problem, gpu) and a
/// text for a cut.
template <class Cut, class How>
class CutCases {
 public:
  using Choices = std::vector<cuda::CutChoice<Cut>> (*)(const Problem&, const cuda::GpuFacts&);
  using Run = How (*)(const ProductCase&, const Cut&);
  using Text = std::string (*)(const Cut&);
  using Wanted = std::function<bool(const Cut&)>;

  CutCases(Choices choices, Run kernel, Text text) : choices_(choices), run_(kernel), text_(text) {}

  /// Runs a case by one of the wanted cuts of its problem: the one that number `which` falls to.
  void run(
      const ProductCase& one, std::size_t which, const Wanted& wanted = [](const Cut&) { return true; }) {
    std::vector<cuda::CutChoice<Cut>> choices = choices_(one.problem, one.gpu());
    std::erase_if(choices, [&](const cuda::CutChoice<Cut>& choice) { return !wanted(choice.cut); });
    if (choices.empty()) {
      ADD_FAILURE() << one.text() << ": there is no way to cut it";
      return;
    }
    const Cut& cut = choices[which % choices.size()].cut;
    try {
      runs_.push_back(run_(one, cut));
    } catch (const std::exception& error) {
      ADD_FAILURE() << one.text() << " (" << text_(cut) << "): " << error.what();
    }
  }
  /// Runs problems given as text, three times each, with copies that arrive late and at once.
  void run_each(std::initializer_list<const char*> texts, Picker& pick) {
    for (const char* text : texts)
      for (int at = 0; at < 3; ++at) {
        ProductCase one;
        one.problem = Problem::parse(text);
        one.timing = at % 2 == 0 ? Timing::late : Timing::early;
        run(one, pick.next(1000));
      }
  }
  [[nodiscard]] const std::vector<How>& runs() const { return runs_; }

 private:
  Choices choices_;
  Run run_;
  Text text_;
  std::vector<How> runs_;
};

}  // namespace kronsparse::emulation
