#include <cstdio>
#include <kronsparse/kronsparse.hpp>
#include <vector>

int main() {
  using namespace kronsparse;
  std::vector<float> values(2 * 3 * 4 * 5, 1.0F), x(7 * 40, 1.0F), y(7 * 30);
  const Plan plan(Problem::parse("f32 batch_first B=7 2x3x4x5"), values.data());
  plan.run({.x = x.data(), .y = y.data()});
  std::printf("kronsparse " KRONSPARSE_VERSION ": y[0] = %g\n", static_cast<double>(y[0]));
  return y[0] == 4.0F ? 0 : 1;
}
