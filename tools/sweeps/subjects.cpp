#include "subjects.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "core/message.hpp"
#include "core/text.hpp"
#include "cuda/backend.hpp"
#include "cuda/chain/fused/search.hpp"
#include "cuda/chain/fused_wgmma/search.hpp"
#include "cuda/large_batch/mma/search.hpp"
#include "cuda/small_batch/cut_family.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse::sweep {
namespace {

const cuda::GpuFacts& facts() { return cuda::gpu(first_gpu); }

template <class... Numbers>
std::string label(Numbers... numbers) {
  return joined(std::vector<std::string>{std::to_string(numbers)...}, ",");
}

const Implementation& implementation(std::string_view name) {
  const std::span<const Implementation> all = cuda_backend().implementations;
  return *std::ranges::find(all, name, &Implementation::name);
}

// Each has: name, columns, all(problem), seconds_of(one), label_of(one), make(problem, one).

struct Fused {
  static constexpr std::string_view name = "fused", columns = "way,samples,ranks,parts,x_buffers,threads";
  static auto all(const Problem& problem) {
    const std::optional<cuda::fused::Cut> cut = cut_of(problem);
    return cut ? cuda::fused::all_configs(problem, cut->links, facts()) : std::vector<cuda::fused::Config>();
  }
  static double seconds_of(const cuda::fused::Config& one) { return one.seconds; }
  static std::string label_of(const cuda::fused::Config& one) {
    return message("fused,{}", label(one.shape.samples, one.ranks(), one.arguments.parts,
                                     one.arguments.x_buffers, one.threads));
  }
  static auto make(const Problem& problem, const cuda::fused::Config& one) {
    return cuda::fused::make_executor(problem, first_gpu, cut_of(problem)->links, one);
  }

 private:
  static std::optional<cuda::fused::Cut> cut_of(const Problem& problem) {
    return cuda::fused::best_cut(problem, cuda::ways_of(problem), facts());
  }
};

struct FusedWgmma {
  static constexpr std::string_view name = "fused_wgmma",
                                    columns = "products,row_groups,warpgroups,parts,in_place";
  static auto all(const Problem& problem) {
    return cuda::fused_wgmma::all_cuts(problem, cuda::ways_of(problem), facts());
  }
  static double seconds_of(const cuda::fused_wgmma::Cut& one) { return one.config.seconds; }
  static std::string label_of(const cuda::fused_wgmma::Cut& one) {
    const cuda::fused_wgmma::Arguments& cut = one.config.arguments;
    return label(cut.steps, one.config.shape.row_groups, one.config.shape.warpgroups, cut.parts,
                 int{cut.step[cut.steps - 1].in_place});
  }
  static auto make(const Problem& problem, const cuda::fused_wgmma::Cut& one) {
    return cuda::fused_wgmma::make_executor(problem, first_gpu, one.links, one.config);
  }
};

struct Mma {
  static constexpr std::string_view name = "mma",
                                    columns = "shape,threads,groups,run,i_count,m_tiles,rows,blocks";
  static auto all(const Problem& problem) { return cuda::mma::all_configs(problem, facts()); }
  static double seconds_of(const cuda::mma::Config& one) { return one.seconds; }
  static std::string label_of(const cuda::mma::Config& one) {
    const cuda::mma::Arguments& cut = one.arguments;
    return label(one.shape_index, one.threads, cut.groups, cut.run.value(), cut.i_count, cut.m_tiles.value(),
                 cut.from.rows, one.blocks_at_once);
  }
  static auto make(const Problem& problem, const cuda::mma::Config& one) {
    return cuda::mma::make_executor(problem, first_gpu, one);
  }
};

/// Kernels with cuts.
template <cuda::CutFamily (*family)()>
struct Cuts {
  static auto all(const Problem& problem) { return family().ways(problem, facts()); }
  static double seconds_of(const cuda::CutWay& one) { return one.seconds; }
  static std::string label_of(const cuda::CutWay& one) {
    std::vector<std::string> numbers;
    for (const int number : one.numbers) numbers.push_back(std::to_string(number));
    return joined(numbers, ",");
  }
  static auto make(const Problem& problem, std::size_t way) { return family().make(problem, first_gpu, way); }
};

constexpr std::string_view direct_columns =
    "bj,load,tiles,outputs,at_once,steps,rows,l_warps,sample_warps,row_blocks,j_groups,sample_blocks";

struct Direct : Cuts<cuda::direct_cuts> {
  static constexpr std::string_view name = "direct", columns = direct_columns;
};
struct Unpacked : Cuts<cuda::unpacked_cuts> {
  static constexpr std::string_view name = "unpacked", columns = direct_columns;
};
struct Resident : Cuts<cuda::resident_cuts> {
  static constexpr std::string_view name = "resident", columns = "d,fragments,passes,k_tiles,sample_blocks";
};
struct Narrow : Cuts<cuda::narrow_cuts> {
  static constexpr std::string_view name = "narrow",
                                    columns =
                                        "bj,outputs,rows,splits,warpgroups,stage_slabs,x_stages,"
                                        "weight_stages";
};
struct Stream : Cuts<cuda::stream_cuts> {
  static constexpr std::string_view name = "stream",
                                    columns = "samples,j_group,cluster,warpgroups,threads,rows,stages";
};
struct Skinny : Cuts<cuda::skinny_cuts> {
  static constexpr std::string_view name = "skinny",
                                    columns =
                                        "n_tiles,j_group,cluster,warps_per_row,rows_per_group,groups,"
                                        "segments,tiles_per_warp";
};

/// Kernels whose way follows from the problem, not from their constants.
struct OneWay {
  static constexpr std::string_view columns = "way";
  static double seconds_of(const Proposal& one) { return one.seconds; }
  static std::string label_of(const Proposal& /*one*/) { return "only"; }
  static std::unique_ptr<Executor> make(const Problem& /*problem*/, const Proposal& one) {
    return one.make();
  }

 protected:
  static std::vector<Proposal> of(std::string_view name, const Problem& problem) {
    Proposal proposal = implementation(name).propose(problem, first_gpu, nullptr);
    if (!proposal.refusal.empty()) return {};
    return {std::move(proposal)};
  }
};

struct Gemm : OneWay {
  static constexpr std::string_view name = "gemm";
  static auto all(const Problem& problem) { return of(name, problem); }
};
struct Wgmma : OneWay {
  static constexpr std::string_view name = "wgmma";
  static auto all(const Problem& problem) { return of(name, problem); }
};
struct Simt : OneWay {
  static constexpr std::string_view name = "simt";
  static auto all(const Problem& problem) { return of(name, problem); }
};
struct GradientSimt : OneWay {
  static constexpr std::string_view name = "gradient-simt";
  static auto all(const Problem& problem) { return of(name, problem); }
};

template <class Kernel>
constexpr Subject subject_of() {
  return {.name = Kernel::name,
          .columns = Kernel::columns,
          .seconds =
              [](const Problem& problem) {
                std::vector<double> all;
                for (const auto& one : Kernel::all(problem)) all.push_back(Kernel::seconds_of(one));
                return all;
              },
          .labels =
              [](const Problem& problem) {
                std::vector<std::string> all;
                for (const auto& one : Kernel::all(problem)) all.push_back(Kernel::label_of(one));
                return all;
              },
          .make = [](const Problem& problem, std::size_t way) -> std::unique_ptr<Executor> {
            if constexpr (requires { Kernel::make(problem, way); })
              return Kernel::make(problem, way);
            else
              return Kernel::make(problem, Kernel::all(problem).at(way));
          }};
}

constexpr std::array all_subjects = {
    subject_of<Gemm>(),        subject_of<Wgmma>(),    subject_of<Mma>(),      subject_of<Simt>(),
    subject_of<Direct>(),      subject_of<Unpacked>(), subject_of<Resident>(), subject_of<Narrow>(),
    subject_of<Stream>(),      subject_of<Skinny>(),   subject_of<Fused>(),    subject_of<FusedWgmma>(),
    subject_of<GradientSimt>()};

}  // namespace

std::span<const Subject> subjects() { return all_subjects; }

const Subject& subject(std::string_view name) {
  const auto found = std::ranges::find(all_subjects, name, &Subject::name);
  if (found != all_subjects.end()) return *found;
  std::vector<std::string_view> names;
  for (const Subject& one : all_subjects) names.push_back(one.name);
  throw Error(ErrorCode::invalid_argument,
              message("kernel: {} cannot be swept; there are {}", quoted(name), joined(names, ", ")));
}

std::string refusal(const Subject& subject, const Problem& problem) {
  const Implementation& one = implementation(subject.name);
  if (one.takes_chains != (problem.chain.size() > 1)) return "takes other chains";
  return one.propose(problem, first_gpu, nullptr).refusal;
}

}  // namespace kronsparse::sweep
