#include "chain_body.hpp"

#include "chain_compare.hpp"
#include "kronsparse/error.hpp"

namespace conformance {
namespace {

template <class T>
class ChainBody {
 public:
  ChainBody(const TestDevice& device, const Target& target, const kronsparse::Problem& problem,
            std::uint64_t seed)
      : target_(target),
        problem_(problem),
        seed_(seed),
        answers_(chain_answers_for<T>(problem, seed)),
        harness_(device, problem, seed) {}

  std::string check() {
    if (std::string wrong = check_kept(); !wrong.empty()) return "values kept by the plan: " + wrong;
    if (std::string wrong = check_given(); !wrong.empty()) return "values given to the run: " + wrong;
    if (std::string wrong = check_packed(); !wrong.empty()) return "values packed apart: " + wrong;
    return {};
  }

 private:
  [[nodiscard]] bool is_gradient() const { return problem_.operation == kronsparse::Operation::gradient; }
  /// Whether a run reads values: the gradient of one factor does for grad_x alone.
  [[nodiscard]] bool reads_values() const {
    return !is_gradient() || problem_.chain.size() > 1 || harness_.wanted().grad_x;
  }

  [[nodiscard]] std::string compare_integers() const {
    if (!exact_activation(problem_.activation)) return {};
    return compare_exactly(harness_, answers_.integers_expected);
  }
  [[nodiscard]] std::string compare_random() const {
    return compare_closely(harness_, answers_.random_expected);
  }

  std::string check_kept() {
    harness_.load(answers_.integers);
    kronsparse::Plan plan(problem_, harness_.values(), target_.device, target_.implementation);
    if (std::string wrong = names_of(plan); !wrong.empty()) return wrong;
    if (!needs_values_for_intermediates()) harness_.forget_values();
    if (std::string wrong = harness_.run(plan); !wrong.empty()) return wrong;
    if (std::string wrong = compare_integers(); !wrong.empty()) return wrong;
    const auto first = harness_.output_bytes();
    if (std::string wrong = harness_.run(plan); !wrong.empty()) return wrong;
    if (harness_.output_bytes() != first) return "two runs differ";
    if (seed_ % 3 != 0) return {};
    harness_.load(answers_.random);
    plan.set_values(harness_.values());
    if (!needs_values_for_intermediates()) harness_.forget_values();
    if (std::string wrong = harness_.run(plan); !wrong.empty()) return wrong;
    return compare_random();
  }

  std::string check_given() {
    harness_.load(answers_.integers);
    const kronsparse::Plan plan(problem_, target_.device, target_.implementation);
    if (std::string wrong = names_of(plan); !wrong.empty()) return wrong;
    const kronsparse::Operands sources{.values = reads_values() ? harness_.values().data() : nullptr};
    if (std::string wrong = harness_.run(plan, sources); !wrong.empty()) return wrong;
    if (std::string wrong = compare_integers(); !wrong.empty()) return wrong;
    const auto first = harness_.output_bytes();
    if (std::string wrong = harness_.run(plan, sources); !wrong.empty()) return wrong;
    if (harness_.output_bytes() != first) return "two runs differ";
    if (seed_ % 3 != 1) return {};
    harness_.load(answers_.random);
    if (std::string wrong = harness_.run(plan, sources); !wrong.empty()) return wrong;
    return compare_random();
  }

  std::string check_packed() {
    const kronsparse::Plan plan(problem_, target_.device, target_.implementation);
    for (const bool random : {false, true}) {
      if (random && seed_ % 3 != 2) break;
      harness_.load(random ? answers_.random : answers_.integers);
      kronsparse::PackedValues packed(plan);
      if (packed.is_ready(plan, harness_.batch())) return "ready before anything is packed";
      const bool has_room = packed.prepare(plan, harness_.batch(), harness_.values());
      if (has_room != packed.is_ready(plan, harness_.batch())) return "prepare() and is_ready() differ";
      if (has_room && !needs_values_for_intermediates()) harness_.forget_values();
      const kronsparse::Operands sources{.values = has_room ? nullptr : harness_.values().data(),
                                         .packed = &packed};
      if (std::string wrong = harness_.run(plan, sources); !wrong.empty()) return wrong;
      if (std::string wrong = random ? compare_random() : compare_integers(); !wrong.empty()) return wrong;
    }
    return {};
  }

  /// The harness runs the product first.
  [[nodiscard]] bool needs_values_for_intermediates() const {
    return is_gradient() && harness_.wanted().intermediates;
  }

  /// Whether every step is by whom was asked for.
  [[nodiscard]] std::string names_of(const kronsparse::Plan& plan) const {
    if (target_.implementation.empty()) return {};
    if (target_.takes_whole(problem_))
      return plan.implementation() == target_.implementation ? "" : "the plan took " + plan.implementation();
    std::string all;
    for (std::size_t step = 0; step < kronsparse::steps_of(problem_).size(); ++step)
      all += (all.empty() ? "" : " + ") + target_.implementation;
    return plan.implementation() == all ? "" : "the plan took " + plan.implementation() + ", must be " + all;
  }

  const Target& target_;
  const kronsparse::Problem& problem_;
  std::uint64_t seed_;
  const ChainAnswers<T>& answers_;
  ChainHarness<T> harness_;
};

}  // namespace

std::string check_chain(const TestDevice& device, const Target& target, const kronsparse::Problem& problem,
                        std::uint64_t seed) {
  const CrashNote note(reproduction(target, problem, seed));
  std::string wrong;
  try {
    wrong = with_element_type(problem.dtype, [&](auto element) {
      return ChainBody<typename decltype(element)::type>(device, target, problem, seed).check();
    });
  } catch (const kronsparse::Error& error) {
    wrong = "threw " + std::string(name(error.code())) + ": " + error.what();
  }
  if (wrong.empty()) return {};
  return wrong + "\n  " + reproduction(target, problem, seed);
}

}  // namespace conformance
