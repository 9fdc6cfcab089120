#include "core/steps.hpp"

#include "core/geometry.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse {
namespace {

class Maker {
 public:
  explicit Maker(const Problem& problem) : whole_(problem) {}

  std::vector<Step> all() && {
    switch (whole_.operation) {
      case Operation::multiply:
        multiply({Place::y});
        break;
      case Operation::transposed:
      case Operation::adjoint:
        for (std::size_t factor = 0; factor < count(); ++factor) {
          const Location from = factor == 0 ? Location{Place::x} : handed_on(factor - 1);
          const Location to = factor + 1 == count() ? Location{Place::y} : handed_on(factor);
          add(factor, whole_.operation, {.x = from, .y = to});
        }
        break;
      case Operation::gradient:
        gradient();
        break;
    }
    return std::move(steps_);
  }

 private:
  struct Operands {
    Location x = {}, g = {}, y = {};
  };

  [[nodiscard]] std::size_t count() const { return whole_.chain.size(); }
  static Location handed_on(std::size_t number) { return {Place::scratch, number % 2}; }
  [[nodiscard]] Location product_from(std::size_t factor) const {
    return factor == count() ? Location{Place::x} : Location{Place::intermediate, factor};
  }

  void multiply(Location last) {
    for (std::size_t factor = count(); factor-- > 0;)
      add(factor, Operation::multiply,
          {.x = product_from(factor + 1), .y = factor == 0 ? last : product_from(factor)});
  }

  void gradient() {
    for (std::size_t factor = count(); factor-- > 1;)
      add(factor, Operation::multiply, {.x = product_from(factor + 1), .y = product_from(factor)});
    for (std::size_t factor = 0; factor < count(); ++factor) {
      const Location g = factor == 0 ? Location{Place::g} : handed_on(factor - 1);
      add(factor, Operation::gradient, {.x = product_from(factor + 1), .g = g, .y = {Place::gradient}});
      const Location to = factor + 1 == count() ? Location{Place::grad_x} : handed_on(factor);
      add(factor, Operation::adjoint, {.x = g, .y = to});
    }
  }

  /// The stride of a matrix: that of the run's operands, or dense for what is handed on.
  [[nodiscard]] std::int64_t stride_at(Location location) const {
    const bool swapped = is_transposed(whole_.operation);
    switch (location.place) {
      case Place::x:
        return swapped ? whole_.rows_stride : whole_.cols_stride;
      case Place::y:
        return swapped ? whole_.cols_stride : whole_.rows_stride;
      case Place::g:
        return whole_.rows_stride;
      default:
        return 0;
    }
  }

  void add(std::size_t factor, Operation operation, Operands at) {
    Problem problem;
    problem.chain = whole_.chain[factor];
    problem.batch = whole_.batch;
    problem.dtype = whole_.dtype;
    problem.layout = whole_.layout;
    problem.operation = operation;
    problem.mode = whole_.mode;
    const bool is_last = at.y.place == Place::y;
    problem.bias = is_last && whole_.bias;
    problem.activation = is_last ? whole_.activation : Activation::none;
    const std::int64_t x_stride = stride_at(at.x), y_stride = stride_at(at.y);
    problem.cols_stride = is_transposed(operation) ? y_stride : x_stride;
    problem.rows_stride = operation == Operation::gradient ? stride_at(at.g)
                          : is_transposed(operation)       ? x_stride
                                                           : y_stride;
    steps_.push_back({factor, std::move(problem), at.x, at.g, at.y});
  }

  const Problem& whole_;
  std::vector<Step> steps_;
};

}  // namespace

std::vector<Step> make_steps(const Problem& problem) { return Maker(problem).all(); }

std::vector<Problem> steps_of(const Problem& problem) {
  problem.validate();
  std::vector<Problem> all;
  for (const Step& step : make_steps(problem))
    if (step.y.place != Place::grad_x) all.push_back(step.problem);
  return all;
}

}  // namespace kronsparse
