// Cuts of a problem with their predicted times, for kernels that can cut a problem in many ways. Host code
// only.
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace kronsparse::cuda {

template <class Cut>
struct CutChoice {
  Cut cut;
  double seconds = std::numeric_limits<double>::infinity();  ///< predicted; infinite if there is no cut
};

/// The cheapest of the cuts that a search has offered. A search may offer cuts in any order and leave out
/// those that a bound excludes. Of equal cuts the one that is enumerated first is kept, so the result is that
/// of cheapest() over all.
template <class Cut>
class BestCut {
 public:
  /// Whether no cut that takes at least this long can be the best. Bounds add the same costs as predictions
  /// but in another order, so their last bits differ.
  [[nodiscard]] bool excludes(double at_least) const { return at_least * (1 - 1e-9) >= choice_.seconds; }
  /// `number` says which of equal cuts is enumerated first.
  void offer(const Cut& cut, double seconds, int number) {
    if (seconds > choice_.seconds || (seconds == choice_.seconds && number >= number_)) return;
    choice_ = {cut, seconds};
    number_ = number;
  }
  [[nodiscard]] const CutChoice<Cut>& choice() const { return choice_; }

 private:
  CutChoice<Cut> choice_;
  int number_ = std::numeric_limits<int>::max();
};

/// Branches of a search: the beginnings of cuts in the order of enumeration, each with a lower bound for all
/// cuts that begin so. A branch is constructed when it is added, because most of the room is never used.
template <class Cut, int most>
class Branches {
 public:
  void add(const Cut& cut, double at_least) {
    at_least_[static_cast<std::size_t>(count_)] = at_least;
    std::construct_at(&room_.cuts[count_], cut);
    ++count_;
  }
  /// Calls visit(cut, number) for the branches, most promising first, until no other can hold the best cut.
  template <class Visitor>
  void visit_promising(const BestCut<Cut>& best, Visitor&& visit) {
    constexpr double visited = std::numeric_limits<double>::infinity();
    for (;;) {
      int next = -1;
      double least = visited;
      for (int at = 0; at < count_; ++at)
        if (at_least_[static_cast<std::size_t>(at)] < least) {
          next = at;
          least = at_least_[static_cast<std::size_t>(at)];
        }
      if (next < 0 || best.excludes(least)) return;
      visit(std::as_const(room_.cuts[next]), next);
      at_least_[static_cast<std::size_t>(next)] = visited;
    }
  }

 private:
  static_assert(std::is_trivially_copyable_v<Cut>);
  union Room {
    Room() {}
    Cut cuts[most];
  };
  int count_ = 0;
  std::array<double, most> at_least_;
  Room room_;
};

/// The cheapest choice; an infinitely long one if there is none.
template <class Cut>
[[nodiscard]] CutChoice<Cut> cheapest(const std::vector<CutChoice<Cut>>& choices) {
  CutChoice<Cut> best;
  for (const CutChoice<Cut>& choice : choices)
    if (choice.seconds < best.seconds) best = choice;
  return best;
}

}  // namespace kronsparse::cuda
