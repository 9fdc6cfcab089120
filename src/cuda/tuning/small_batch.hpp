// The fitted constants of the cost models in small_batch/: seconds, rates and shares on the GPU of the fit.
// Every member is a double, so that a program can try others (tools/sweeps).
#pragma once

namespace kronsparse::cuda::tuning {

/// Packed weights, for blocks of several j and for d = 1.
struct Direct {
  struct Costs {
    double start;           ///< launch, and the latency of the first bytes
    double registers;       ///< per register of x or sums, for each step at once
    double waiting;         ///< weights that could not be requested ahead
    double wave;            ///< blocks that wait for others to end
    double block;           ///< per block of the grid
    double round;           ///< a round of loads of x, however many steps at once
    double step;            ///< per step of a warp
    double item;            ///< per item of a warp: sums on their way to y
    double exchanged;       ///< the same when sums are added to those of other warps
    double warp;            ///< per warp of a block
    double sample_warps;    ///< once if a block has several sample warps
    double line;            ///< per line of x that a load needs
    double byte_under_way;  ///< per byte of x under way, if lines are used in parts
    double operand;         ///< per operand of weights read from shared memory
    double sum;             ///< per sum that is exchanged or stored
    double weights_ahead;   ///< share of the time to read the weights, if they could not be requested ahead
    double weights_again;   ///< the same, for each block of samples
    double half_sector;     ///< per half sector of x that another block fetches as well
  };
  Costs several_j, one_j;
};

/// The same kernel with weights as given.
struct Unpacked {
  double start;      ///< launch after the end of the earlier kernel, and the latency of the first bytes
  double registers;  ///< per register of x, weights or sums
  double wave;       ///< blocks that wait for others to end
  double block;      ///< per block of the grid
  double round;      ///< a round of loads, however many steps at once
  double step;       ///< per step of a warp
  double ending;     ///< sums that are added to those of other warps
  double warp;       ///< per warp of a block
  double x_line;     ///< per line that a load needs
  double weight_line;
  double sum;      ///< per sum that is exchanged or stored
  double weights;  ///< share of the time to read the weights
  double sectors;  ///< share of the same, for parts of sectors that blocks fetch again
};

struct WeightsStay {
  double start, start_of_8_j, start_of_32_j;  ///< seconds; the latter are added from that d on
  double l2_rate;                             ///< bytes per second, to all multiprocessors
  double weights, weights_again;              ///< shares of the time to read them from memory, and from L2
  double x_again;                             ///< the same for x, from L2
  double wave, block, pass;                   ///< seconds for each but the first wave and pass
  double work_of_8_j, work_of_32_j, work_of_64_j;  ///< seconds of a pass, from that d on: products, and sums
                                                   ///< that meet
};

struct SumsStay {
  double clock;                    ///< of the GPU while it was measured; rates and waits are in clocks
  double start;                    ///< seconds of a kernel that does little, and of its first bytes
  double memory;                   ///< rate of reading weights, over that of a copy
  double copied;                   ///< bytes to a multiprocessor
  double request;                  ///< clocks of the thread that requests x, for each copy
  double wait, slab, output;       ///< clocks of a warpgroup
  double x_refill, weight_refill;  ///< seconds to refill all stages of a ring
  double add, added;               ///< seconds, and bytes in a clock, of sums of a block's warpgroups
  double pair, paired, lending;    ///< the same for two blocks; seconds if each has two warpgroups
  double wave;                     ///< seconds of each wave but the first
  double mixed;                    ///< share of the work that could overlap but does not
  /// Seconds that the next kernel gains, because its first weights are there when it begins: always, a share
  /// of the first bytes' time, and at most.
  double gained, gained_share, most_gained;
  double refills;  ///< share of refills that decides between cuts that are equal otherwise
  /// Factors for predictions. d = 1: sums of less than 512 terms; more than 16 samples; fewer. Others: few
  /// samples; sums of 1,000 terms and more; rows of 1,024 elements and more; the rest.
  double margin_one_j_short, margin_one_j, margin_one_j_few;
  double margin_few, margin_long, margin_rows, margin;
};

struct XStaysWgmma {
  double clock;                           ///< of the GPU while it was measured
  double start;                           ///< seconds of a kernel that does little
  double l2_of_one, all_l2;               ///< bytes per second, to each multiprocessor and to all together
  double box_latency, load_latency;       ///< seconds
  double load, load_of_elements;          ///< seconds of a thread's load of x
  double exchanged;                       ///< bytes per second, from a multiprocessor to its cluster
  double exchange, added;                 ///< seconds, once and for each output of a thread
  double staging, collecting, collected;  ///< seconds, the last for each vector of a thread
  double stored, stored_of_several_j;     ///< seconds for each row and sample
  double row, turn;                       ///< seconds
  double step_start, step_sample, step_least;  ///< clocks of an instruction: the first, for each sample; for
                                               ///< each sample at least
  double waiting, weights_late, multiplying;   ///< without a kernel beside it: seconds, seconds of weights,
                                               ///< share of the products
  double usable_of_4, usable_of_8;             ///< share of the multiprocessors that clusters can use
  /// Factors for more than 32 samples, measured and not explained: several j; one j and sums of less than 512
  /// terms.
  double margin_several_j, margin_short;
};

struct XStaysMma {
  double start;                       ///< seconds of a kernel that does little
  double l2_latency, memory_latency;  ///< seconds
  double other_samples;               ///< memory's rate, where blocks find each other's weights in L2
  double group, turn, round;          ///< seconds for each but the first
  double segment;                     ///< the same for stagings of x
  double all_l2, l2_of_one;           ///< bytes per second, to all multiprocessors together, to each
  double weights_of_one;              ///< the same from memory
  double exchanged;                   ///< bytes per second, from a multiprocessor to its cluster
  double clock;                       ///< of the GPU while it was measured
  double usable_of_4, usable_of_8;    ///< share of the multiprocessors that clusters can use
  double meeting_of_warps;            ///< seconds to add up
  double meeting, meeting_of_each;    ///< the same for a cluster, and for each of its blocks
  double waits, waits_of_samples;     ///< latencies for each load of elements, of one sample or several
  double exposed, exposed_of_each;    ///< x of blocks that share a multiprocessor, and of each round
  double tensor_clocks;               ///< for each vector of weights and tile of samples
  double fewest_warps;                ///< that keep a multiprocessor busy
  double last_tile;                   ///< seconds
  double finish;                      ///< seconds of an output, for each of the following
  double finish_of_part;              ///< for each part of its sum
  double finish_start;                ///< once
};

}  // namespace kronsparse::cuda::tuning
