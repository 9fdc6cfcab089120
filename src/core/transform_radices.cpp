// Radices of fast transforms, chosen for a device.
#include <algorithm>
#include <limits>
#include <set>
#include <vector>

#include "core/message.hpp"
#include "kronsparse/error.hpp"
#include "kronsparse/plan.hpp"
#include "kronsparse/problem.hpp"
#include "kronsparse/transforms.hpp"

namespace kronsparse {
namespace {

using Radices = std::vector<std::int64_t>;

/// Those of 2, 3, 5 and 7, largest first.
Radices prime_factors(std::int64_t n) {
  if (n < 1) throw Error(ErrorCode::invalid_argument, message("n: {} given, must be at least 1", n));
  Radices primes;
  std::int64_t left = n;
  for (const std::int64_t prime : {7, 5, 3, 2})
    for (; left % prime == 0; left /= prime) primes.push_back(prime);
  if (left > 1)
    throw Error(ErrorCode::unsupported,
                message("n: {} given, must have no prime factor but 2, 3, 5 and 7, here {}", n, left));
  return primes;
}

/// Prime factors multiplied together as long as they stay within the limit, to the smallest first.
Radices grouped(const Radices& primes, std::int64_t limit) {
  Radices radices;
  for (const std::int64_t prime : primes) {
    const auto smallest = std::ranges::min_element(radices);
    if (smallest != radices.end() && *smallest * prime <= limit)
      *smallest *= prime;
    else
      radices.push_back(prime);
  }
  if (radices.empty()) radices.push_back(1);
  return radices;
}

}  // namespace

Radices transform_radices(std::int64_t n, DType dtype, Device device) {
  const Radices primes = prime_factors(n);
  std::set<Radices> candidates;
  for (const std::int64_t limit : {4, 8, 16, 32, 64}) candidates.insert(grouped(primes, limit));
  if (candidates.size() == 1) return *candidates.begin();
  Problem problem;
  problem.dtype = dtype;
  problem.layout = Layout::batch_last;
  problem.batch = 64;
  double least = std::numeric_limits<double>::infinity();
  Radices best;
  for (const Radices& radices : candidates) {
    problem.chain = Chain::butterfly(radices, radices);
    const double seconds = predicted_seconds(problem, device);
    if (best.empty() || seconds < least) {
      least = seconds;
      best = radices;
    }
  }
  return best;
}

}  // namespace kronsparse
