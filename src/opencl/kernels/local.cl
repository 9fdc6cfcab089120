// Tiles of both operands through local memory, for GPUs. A work-group of THREADS computes TILE_M x TILE_N sums of
// TILE_J neighbouring j, a work-item THREAD_M x THREAD_N sums of one of them. Chunks of CHUNK steps of the sum
// lie in local memory as [j][step][row], in two buffers: while one is multiplied, the next chunk is on its way
// from global memory to registers. TEAMS of such work-items share a work-group: chunks of the sum go to them in
// turn, and their sums are added up in the end, always in the same order. That is for gradients whose tiles are too
// few to fill a device.
//
// A_ORDER and B_ORDER say which elements of an operand are neighbours in memory, so that neighbouring work-items
// read neighbours:
#define ROWS_FIRST 1     // rows
#define STEPS_FIRST 2    // steps of the sum
#define J_THEN_STEPS 3   // j, and runs of them along the sum
#define J_THEN_ROWS 4    // j, and runs of them along the rows

// Arrays stay in registers where all loops over them are unrolled. CPUs keep them in memory anyhow, since
// work-items take turns, and their compilers would need minutes.
#if IS_CPU
#define UNROLL
#else
#define UNROLL _Pragma("unroll")
#endif

#define THREADS_M (TILE_M / THREAD_M)
#define THREADS_N (TILE_N / THREAD_N)
#define THREADS (TILE_J * THREADS_M * THREADS_N)
#if TEAMS > 1
#define IN_TEAM ((int)get_local_id(0) % THREADS)
#define TEAM ((int)get_local_id(0) / THREADS)
#else
#define IN_TEAM ((int)get_local_id(0))
#define TEAM 0
#endif

// Rows of local memory are vectors of four; those four change places from step to step where work-items of one
// vector would else write to one bank.
#define A_PITCH (TILE_M + 4)
#define B_PITCH (TILE_N + 4)
#define SWAPPED(row, step, order) ((order) == ROWS_FIRST ? (row) : (row) ^ ((step)&3))
#define A_PLANE (CHUNK * A_PITCH + 4)
#define B_PLANE (CHUNK * B_PITCH + 4)
#define BUFFER (TILE_J * (A_PLANE + B_PLANE))
#define BUFFERS (TEAMS * 2 * BUFFER)

// Sums leave through local memory, PASS rows of every work-item at a time. Rows of neighbouring work-items are one
// element further apart than they are long, so that these write to different banks.
#define STAGE_ROWS (THREADS_M * PASS)
#define STAGE_PITCH (TILE_N + (TILE_J > 8 ? 2 : 4))
#define STAGE_APART (PASS * TILE_J * STAGE_PITCH + 1)
#define STAGE (THREADS_M * STAGE_APART)
#define ADDED ((TEAMS - 1) * THREADS * THREAD_M)  // sums on their way to the first team
#define LARGER(one, other) ((one) > (other) ? (one) : (other))
#define LOCAL_ELEMENTS LARGER(BUFFERS, LARGER(STAGE, ADDED))

// What is on its way to local memory: an element, or a word with two neighbours of a half type. Words are taken apart
// when they have arrived: whatever is done to them before waits for them.
#if IS_HALF
typedef uint Raw;
#define IN_RAW 2
INLINE void bring(Raw* raws, int e, const global Element* from) { raws[e / 2] |= (uint)*from << e % 2 * 16; }
INLINE Sum arrived(const Raw* raws, int e) { return number_of((ushort)(raws[e / 2] >> e % 2 * 16)); }
#else
typedef Sum Raw;
#define IN_RAW 1
INLINE void bring(Raw* raws, int e, const global Element* from) { raws[e] = load(from, 0); }
INLINE Sum arrived(const Raw* raws, int e) { return raws[e]; }
#endif

// A work-item brings runs of VECTOR neighbours at a time, by one load where memory is aligned for that.
#define IS_J_FIRST(order) ((order) == J_THEN_STEPS || (order) == J_THEN_ROWS)
#define VECTOR(order) (IS_COMPLEX ? 1 : IS_J_FIRST(order) ? AT_MOST(TILE_J, 4) : 4)
#define COUNT(rows, order) \
  ((TILE_J * (rows)*CHUNK + THREADS * VECTOR(order) - 1) / (THREADS * VECTOR(order)))

// The first element of the `turn`th run that a work-item brings, of a tile of `rows`.
typedef struct {
  int row, step, j;
} Spot;

INLINE Spot spot_of(int turn, const int rows, const int order) {
  const int index = (IN_TEAM + turn * THREADS) * VECTOR(order);
  Spot spot;
  if (order == ROWS_FIRST) {
    spot.row = index % rows;
    spot.step = index / rows % CHUNK;
    spot.j = index / (rows * CHUNK);
  } else if (order == STEPS_FIRST) {
    spot.step = index % CHUNK;
    spot.row = index / CHUNK % rows;
    spot.j = index / (rows * CHUNK);
  } else if (order == J_THEN_STEPS) {
    spot.j = index % TILE_J;
    spot.step = index / TILE_J % CHUNK;
    spot.row = index / (TILE_J * CHUNK);
  } else {
    spot.j = index % TILE_J;
    spot.row = index / TILE_J % rows;
    spot.step = index / (TILE_J * rows);
  }
  return spot;
}

// Whether a run is one at all: the last turn may have less than one for each work-item.
INLINE bool is_spot(int turn, const int rows, const int order) {
  return TILE_J * rows * CHUNK % (THREADS * VECTOR(order)) == 0 ||
         (IN_TEAM + turn * THREADS) * VECTOR(order) < TILE_J * rows * CHUNK;
}

typedef struct {
  OFFSET row, step, j;
} Strides;

// A vector of `count` elements, 2 or 4 of them, to the place of as many raws.
INLINE void fetch_vector(Raw* raws, const global Element* from, const int count) {
#if IS_HALF
  if (count == 4) {
    const uint2 words = *(const global uint2*)from;
    raws[0] = words.x;
    raws[1] = words.y;
  } else {
    raws[0] = *(const global uint*)from;
  }
#elif !IS_COMPLEX
  if (count == 4) {
    const JOIN(REAL, 4) four = *(const global JOIN(REAL, 4)*)from;
    raws[0] = four.x;
    raws[1] = four.y;
    raws[2] = four.z;
    raws[3] = four.w;
  } else {
    const JOIN(REAL, 2) two = *(const global JOIN(REAL, 2)*)from;
    raws[0] = two.x;
    raws[1] = two.y;
  }
#endif
}

// Runs that are vectors exist as a whole or not at all.
INLINE void fetch(Raw* raws, const global Element* from, const Strides strides, int rows_left, int steps_left,
                  int js_left, const bool is_aligned, const int rows, const int order) {
  const int vector = VECTOR(order);
UNROLL
  for (int turn = 0; turn < COUNT(rows, order); ++turn) {
    const Spot spot = spot_of(turn, rows, order);
    const bool exists =
        is_spot(turn, rows, order) && spot.row < rows_left && spot.step < steps_left && spot.j < js_left;
    const int left = order == ROWS_FIRST    ? rows_left - spot.row
                     : order == STEPS_FIRST ? steps_left - spot.step
                                            : js_left - spot.j;
    const OFFSET apart = order == ROWS_FIRST    ? strides.row
                         : order == STEPS_FIRST ? strides.step
                                                : strides.j;
    const global Element* const begin =
        from + (spot.row * strides.row + spot.step * strides.step + spot.j * strides.j) * ELEMENT_PARTS;
    Raw* const run = raws + turn * vector / IN_RAW;
    if (!IS_COMPLEX && is_aligned && exists) {
      fetch_vector(run, begin, vector);
      continue;
    }
UNROLL
    for (int e = 0; e < vector / IN_RAW; ++e) run[e] = (Raw)0;
UNROLL
    for (int e = 0; e < vector; ++e)
      if (exists && e < left) bring(run, e, begin + e * apart * ELEMENT_PARTS);
  }
}

INLINE void put(local Sum* to, const Raw* raws, const int rows, const int pitch, const int plane, const int order,
                const bool conjugates) {
  const int vector = VECTOR(order);
UNROLL
  for (int turn = 0; turn < COUNT(rows, order); ++turn) {
    const Spot spot = spot_of(turn, rows, order);
    if (!is_spot(turn, rows, order)) continue;
    const Raw* const run = raws + turn * vector / IN_RAW;
#if !IS_COMPLEX
    if (order == ROWS_FIRST) {
      *(local JOIN(REAL, 4)*)(to + spot.j * plane + spot.step * pitch + spot.row) =
          (JOIN(REAL, 4))(arrived(run, 0), arrived(run, 1 % vector), arrived(run, 2 % vector), arrived(run, 3 % vector));
      continue;
    }
#endif
UNROLL
    for (int e = 0; e < vector; ++e) {
      const int row = spot.row + (order == ROWS_FIRST ? e : 0);
      const int step = spot.step + (order == STEPS_FIRST ? e : 0);
      const int j = spot.j + (IS_J_FIRST(order) ? e : 0);
      const Sum value = arrived(run, e);
      to[j * plane + step * pitch + SWAPPED(row, step, order)] = conjugates ? conjugate(value) : value;
    }
  }
}

// `count` elements of a work-item, in groups of four that lie `apart` from each other.
INLINE void take(Sum* values, const local Sum* from, int step, const int count, const int apart, const int order) {
UNROLL
  for (int group = 0; group < count / 4; ++group) {
#if IS_COMPLEX
UNROLL
    for (int e = 0; e < 4; ++e) values[group * 4 + e] = from[group * apart + SWAPPED(e, step, order)];
#else
    union {
      JOIN(REAL, 4) vector;
      Sum lane[4];
    } four;
    four.vector = *(const local JOIN(REAL, 4)*)(from + group * apart);
UNROLL
    for (int e = 0; e < 4; ++e) values[group * 4 + e] = four.lane[SWAPPED(e, step, order)];
#endif
  }
}

#if !IS_COMPLEX
typedef JOIN(REAL, 4) Four;

INLINE Four load_four(const global Element* from, OFFSET apart) {
  return (Four)(load(from, 0), load(from, apart), load(from, 2 * apart), load(from, 3 * apart));
}

// Four neighbours at once, aligned to their number.
INLINE void store_four(global Element* to, Four four) {
#if KIND == DTYPE_f16
  vstorea_half4_rte(four, 0, (global half*)to);
#elif KIND == DTYPE_bf16
  const uint4 bits = BF16_OF(as_uint4(four), isnan(four));
  *(global uint2*)to = bits.even | bits.odd << 16;
#else
  *(global Four*)to = four;
#endif
}
#endif

kernel WORK_GROUP void contract(const global Element* a, const global Element* b, global Element* c,
                                const global Element* bias, Args given) {
  local Sum memory[LOCAL_ELEMENTS] __attribute__((aligned(32)));
  const Args* const args = &given;
  const Place place = place_of(args, args->first_tile + get_group_id(0), TILE_J, TILE_M, TILE_N);
  const int rows_m = (int)AT_MOST(args->m - place.m, TILE_M);
  const int rows_n = (int)AT_MOST(args->n - place.n, TILE_N);
  const int js = (int)AT_MOST(args->js - place.j, TILE_J);
  a += args->a_at + (place.i * args->a_i + place.j * args->a_j + place.m * args->a_row) * ELEMENT_PARTS;
  b += args->b_at + (place.i * args->b_i + place.j * args->b_j + place.n * args->b_tile) * ELEMENT_PARTS;
  c += args->c_at + (place.i * args->c_i + place.j * args->c_j + place.m * args->c_m + place.n * args->c_n) *
                        ELEMENT_PARTS;
  bias += args->bias_at + (place.i * args->bias_i + place.n * args->bias_n + place.j) * ELEMENT_PARTS;
  const Strides a_strides = {args->a_row, args->a_depth, args->a_j};
  const Strides b_strides = {args->b_row, args->b_depth, args->b_j};
  const bool conjugates_b = args->conjugates_b;

  // Neighbouring work-items are a block of SIDE_M x SIDE_N, so that what they read of either operand is little.
  const int thread = IN_TEAM;
  const int thread_j = thread / (THREADS_M * THREADS_N);
  const int in_j = thread % (THREADS_M * THREADS_N);
  const int in_block = in_j % (SIDE_M * SIDE_N);
  const int block = in_j / (SIDE_M * SIDE_N);
  const int thread_m = in_block % SIDE_M + SIDE_M * (block % (THREADS_M / SIDE_M));
  const int thread_n = in_block / SIDE_M + SIDE_N * (block / (THREADS_M / SIDE_M));

  Sum sums[THREAD_M][THREAD_N];
UNROLL
  for (int r = 0; r < THREAD_M; ++r)
UNROLL
    for (int s = 0; s < THREAD_N; ++s) sums[r][s] = (Sum)0;

  Raw a_raws[COUNT(TILE_M, A_ORDER) * VECTOR(A_ORDER) / IN_RAW];
  Raw b_raws[COUNT(TILE_N, B_ORDER) * VECTOR(B_ORDER) / IN_RAW];
  const bool is_a_aligned = args->loads_a_vectors;
  const bool is_b_aligned = args->loads_b_vectors;
  // Every team takes as many turns, since all wait at the same barriers; chunks beyond the end are zeros. Turns
  // are counted, not steps: an int takes one register less.
  int turns = (int)((args->depth + TEAMS * CHUNK - 1) / (TEAMS * CHUNK));
  const int last_steps = (int)(args->depth - (turns - 1L) * (TEAMS * CHUNK)) - TEAM * CHUNK;
  a += TEAM * CHUNK * args->a_depth * ELEMENT_PARTS;
  b += TEAM * CHUNK * args->b_depth * ELEMENT_PARTS;
  const int first_steps = turns > 1 ? CHUNK : AT_MOST(last_steps, CHUNK);
  fetch(a_raws, a, a_strides, rows_m, first_steps, js, is_a_aligned, TILE_M, A_ORDER);
  fetch(b_raws, b, b_strides, rows_n, first_steps, js, is_b_aligned, TILE_N, B_ORDER);
  local Sum* const buffers = memory + TEAM * 2 * BUFFER;
  local Sum* buffer = buffers;
  put(buffer, a_raws, TILE_M, A_PITCH, A_PLANE, A_ORDER, false);
  put(buffer + TILE_J * A_PLANE, b_raws, TILE_N, B_PITCH, B_PLANE, B_ORDER, conjugates_b);
  barrier(CLK_LOCAL_MEM_FENCE);
  for (; turns > 0; --turns) {
    const bool is_more = turns > 1;
    const int next = turns > 2 ? CHUNK : AT_MOST(last_steps, CHUNK);
    if (is_more) {
      a += TEAMS * CHUNK * args->a_depth * ELEMENT_PARTS;
      b += TEAMS * CHUNK * args->b_depth * ELEMENT_PARTS;
      fetch(a_raws, a, a_strides, rows_m, next, js, is_a_aligned, TILE_M, A_ORDER);
      fetch(b_raws, b, b_strides, rows_n, next, js, is_b_aligned, TILE_N, B_ORDER);
    }
    const local Sum* const a_tile = buffer + thread_j * A_PLANE + thread_m * 4;
    const local Sum* const b_tile = buffer + TILE_J * A_PLANE + thread_j * B_PLANE + thread_n * 4;
UNROLL
    for (int step = 0; step < CHUNK; ++step) {
      Sum left[THREAD_M];
      Sum right[THREAD_N];
      take(left, a_tile + step * A_PITCH, step, THREAD_M, THREADS_M * 4, A_ORDER);
      take(right, b_tile + step * B_PITCH, step, THREAD_N, THREADS_N * 4, B_ORDER);
UNROLL
      for (int r = 0; r < THREAD_M; ++r)
UNROLL
        for (int s = 0; s < THREAD_N; ++s) sums[r][s] = MULTIPLY_ADD(sums[r][s], left[r], right[s]);
    }
    if (is_more) {
      buffer = buffer == buffers ? buffers + BUFFER : buffers;
      put(buffer, a_raws, TILE_M, A_PITCH, A_PLANE, A_ORDER, false);
      put(buffer + TILE_J * A_PLANE, b_raws, TILE_N, B_PITCH, B_PLANE, B_ORDER, conjugates_b);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }

#if TEAMS > 1
UNROLL
  for (int s = 0; s < THREAD_N; ++s) {
UNROLL
    for (int r = 0; r < THREAD_M; ++r)
      if (TEAM > 0) memory[((TEAM - 1) * THREAD_M + r) * THREADS + thread] = sums[r][s];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (TEAM == 0)
      for (int team = 0; team < TEAMS - 1; ++team)
UNROLL
        for (int r = 0; r < THREAD_M; ++r) sums[r][s] += memory[(team * THREAD_M + r) * THREADS + thread];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
#endif

  const OFFSET c_j = args->c_j;
  const OFFSET c_m = args->c_m;
  const OFFSET c_n = args->c_n;
  const OFFSET bias_n = args->bias_n;
#if TEAMS == 1 && TILE_J == 1 && !IS_COMPLEX
  // Numbers that need no activation leave as vectors, straight from registers.
  if (args->stores_vectors && !args->activation && (STORES_M_FIRST ? rows_m : rows_n) % 4 == 0) {
UNROLL
    for (int r = 0; r < THREAD_M; r += STORES_M_FIRST ? 4 : 1)
UNROLL
      for (int s = 0; s < THREAD_N; s += STORES_M_FIRST ? 1 : 4) {
        const int m = r / 4 * (THREADS_M * 4) + thread_m * 4 + r % 4;
        const int n = s / 4 * (THREADS_N * 4) + thread_n * 4 + s % 4;
        if (m >= rows_m || n >= rows_n) continue;
#if STORES_M_FIRST
        Four four = {sums[r][s], sums[r + 1][s], sums[r + 2][s], sums[r + 3][s]};
        if (args->has_bias) four += load(bias, n * bias_n);
        store_four(c + m + n * c_n, four);
#else
        Four four = {sums[r][s], sums[r][s + 1], sums[r][s + 2], sums[r][s + 3]};
        if (args->has_bias) four += load_four(bias + n * bias_n, bias_n);
        store_four(c + m * c_m + n, four);
#endif
      }
    return;
  }
#endif

UNROLL
  for (int pass = 0; pass < THREAD_M / PASS; ++pass) {
    // Written by whoever has the sums, read in the order of memory: RUN neighbouring j, or one element, at a time.
#if TILE_J % 4 == 0 && !STORES_M_FIRST && !IS_COMPLEX
#define RUN 4
#else
#define RUN 1
#endif
    if (TEAM == 0) {
UNROLL
      for (int r = 0; r < PASS; ++r)
UNROLL
        for (int s = 0; s < THREAD_N; ++s)
          memory[thread_m * STAGE_APART + (r * TILE_J + thread_j) * STAGE_PITCH + s / 4 * (THREADS_N * 4) +
                 thread_n * 4 + s % 4] = sums[pass * PASS + r][s];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int turn = (int)get_local_id(0); turn < STAGE_ROWS * TILE_J * TILE_N / RUN; turn += TEAMS * THREADS) {
      const int index = turn * RUN;
#if STORES_M_FIRST
      const int staged = index % STAGE_ROWS;
      const int n = index / STAGE_ROWS % TILE_N;
      const int j = index / (STAGE_ROWS * TILE_N);
#else
      const int j = index % TILE_J;
      const int n = index / TILE_J % TILE_N;
      const int staged = index / (TILE_J * TILE_N);
#endif
      const int r = pass * PASS + staged % PASS;
      const int m = r / 4 * (THREADS_M * 4) + staged / PASS * 4 + r % 4;
      if (m >= rows_m || n >= rows_n || j >= js) continue;
      const local Sum* const staged_sums =
          memory + staged / PASS * STAGE_APART + (staged % PASS * TILE_J + j) * STAGE_PITCH + n;
      const OFFSET at = j * c_j + m * c_m + n * c_n;
      const OFFSET bias_at = n * bias_n + j;
#if RUN == 4
      if (args->stores_runs && !args->activation && j + 4 <= js) {
        Four four = {staged_sums[0], staged_sums[STAGE_PITCH], staged_sums[2 * STAGE_PITCH],
                              staged_sums[3 * STAGE_PITCH]};
        if (args->has_bias) four += load_four(bias + bias_at, 1);
        store_four(c + at, four);
        continue;
      }
#endif
      for (int e = 0; e < RUN && j + e < js; ++e)
        finish(c, bias, args, at + e * c_j, bias_at + e, staged_sums[e * STAGE_PITCH]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}
