// Tiles of both operands through local memory, for GPUs. A work-group of THREADS computes TILE_M x TILE_N sums of
// TILE_J neighbouring j, a work-item THREAD_M x THREAD_N sums of one of them. Chunks of CHUNK steps of the sum
// lie in local memory as [j][step][row], in two buffers: while one is multiplied, the next chunk is on its way
// from global memory to registers.
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

// Rows of local memory are vectors of four; those four change places from step to step where work-items of one
// vector would else write to one bank.
#define A_PITCH (TILE_M + 4)
#define B_PITCH (TILE_N + 4)
#define SWAPPED(row, step, order) ((order) == ROWS_FIRST ? (row) : (row) ^ ((step)&3))
#define A_PLANE (CHUNK * A_PITCH + 4)
#define B_PLANE (CHUNK * B_PITCH + 4)
#define BUFFER (TILE_J * (A_PLANE + B_PLANE))

// Sums leave through local memory, PASS rows of every work-item at a time.
#define STAGE_ROWS (THREADS_M * PASS)
#define STAGE_PITCH (TILE_N + 4)
#define STAGE (STAGE_ROWS * TILE_J * STAGE_PITCH)
#define LOCAL_ELEMENTS (2 * BUFFER > STAGE ? 2 * BUFFER : STAGE)

// An element on its way: converted only when it has arrived.
#if KIND == DTYPE_f16 || KIND == DTYPE_bf16
typedef ushort Raw;
INLINE Raw load_raw(const global Element* from) { return *from; }
INLINE Sum widen(Raw raw) {
#if KIND == DTYPE_f16
  return vload_half(0, (const half*)&raw);
#else
  return as_float((uint)raw << 16);
#endif
}
#else
typedef Sum Raw;
INLINE Raw load_raw(const global Element* from) { return load(from, 0); }
INLINE Sum widen(Raw raw) { return raw; }
#endif

#define COUNT(rows) ((TILE_J * (rows)*CHUNK + THREADS - 1) / THREADS)

// The `turn`th element that a work-item brings, of a tile of `rows`.
typedef struct {
  int row, step, j;
} Spot;

INLINE Spot spot_of(int turn, const int rows, const int order) {
  const int index = (int)get_local_id(0) + turn * THREADS;
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

// Whether a spot is one at all: the last turn may have less than one for each work-item.
INLINE bool is_spot(int turn, const int rows) {
  return TILE_J * rows * CHUNK % THREADS == 0 ||
         (int)get_local_id(0) + turn * THREADS < TILE_J * rows * CHUNK;
}

typedef struct {
  OFFSET row, step, j;
} Strides;

INLINE void fetch(Raw* raws, const global Element* from, const Strides strides, int rows_left, int steps_left,
                  int js_left, const int rows, const int order) {
UNROLL
  for (int turn = 0; turn < COUNT(rows); ++turn) {
    const Spot spot = spot_of(turn, rows, order);
    const bool exists =
        is_spot(turn, rows) && spot.row < rows_left && spot.step < steps_left && spot.j < js_left;
    raws[turn] = (Raw)0;
    if (exists)
      raws[turn] = load_raw(from + (spot.row * strides.row + spot.step * strides.step + spot.j * strides.j) *
                                       ELEMENT_PARTS);
  }
}

INLINE void put(local Sum* to, const Raw* raws, const int rows, const int pitch, const int plane, const int order,
                const bool conjugates) {
UNROLL
  for (int turn = 0; turn < COUNT(rows); ++turn) {
    const Spot spot = spot_of(turn, rows, order);
    const Sum value = widen(raws[turn]);
    if (is_spot(turn, rows))
      to[spot.j * plane + spot.step * pitch + SWAPPED(spot.row, spot.step, order)] =
          conjugates ? conjugate(value) : value;
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

kernel __attribute__((reqd_work_group_size(THREADS, 1, 1))) void contract(const global Element* a,
                                                                          const global Element* b,
                                                                          global Element* c,
                                                                          const global Element* bias, Args given) {
  local Sum memory[LOCAL_ELEMENTS] __attribute__((aligned(32)));
  const Args* const args = &given;
  const Place place = place_of(args, args->first_tile + get_group_id(0), TILE_J, TILE_M, TILE_N);
  const int rows_m = (int)AT_MOST(args->m - place.m, TILE_M);
  const int rows_n = (int)AT_MOST(args->n - place.n, TILE_N);
  const int js = (int)AT_MOST(args->js - place.j, TILE_J);
  a += args->a_at + (place.i * args->a_i + place.j * args->a_j + place.m * args->a_row) * ELEMENT_PARTS;
  b += args->b_at + (place.i * args->b_i + place.j * args->b_j + place.n * args->b_tile) * ELEMENT_PARTS;
  const Strides a_strides = {args->a_row, args->a_depth, args->a_j};
  const Strides b_strides = {args->b_row, args->b_depth, args->b_j};
  const bool conjugates_b = args->conjugates_b;

  // Neighbouring work-items are a block of SIDE_M x SIDE_N, so that what they read of either operand is little.
  const int thread = (int)get_local_id(0);
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

  Raw a_raws[COUNT(TILE_M)];
  Raw b_raws[COUNT(TILE_N)];
  long steps_left = args->depth;
  fetch(a_raws, a, a_strides, rows_m, (int)AT_MOST(steps_left, CHUNK), js, TILE_M, A_ORDER);
  fetch(b_raws, b, b_strides, rows_n, (int)AT_MOST(steps_left, CHUNK), js, TILE_N, B_ORDER);
  local Sum* buffer = memory;
  put(buffer, a_raws, TILE_M, A_PITCH, A_PLANE, A_ORDER, false);
  put(buffer + TILE_J * A_PLANE, b_raws, TILE_N, B_PITCH, B_PLANE, B_ORDER, conjugates_b);
  barrier(CLK_LOCAL_MEM_FENCE);
  for (; steps_left > 0; steps_left -= CHUNK) {
    const int next = (int)AT_MOST(steps_left - CHUNK, CHUNK);
    if (next > 0) {
      a += CHUNK * args->a_depth * ELEMENT_PARTS;
      b += CHUNK * args->b_depth * ELEMENT_PARTS;
      fetch(a_raws, a, a_strides, rows_m, next, js, TILE_M, A_ORDER);
      fetch(b_raws, b, b_strides, rows_n, next, js, TILE_N, B_ORDER);
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
    if (next > 0) {
      buffer = buffer == memory ? memory + BUFFER : memory;
      put(buffer, a_raws, TILE_M, A_PITCH, A_PLANE, A_ORDER, false);
      put(buffer + TILE_J * A_PLANE, b_raws, TILE_N, B_PITCH, B_PLANE, B_ORDER, conjugates_b);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }

#if TILE_J == 1 && (KIND == DTYPE_f32 || KIND == DTYPE_f64)
  // Whole tiles of numbers that need no activation leave as vectors, straight from registers.
  if (args->stores_vectors && !args->activation && rows_m == TILE_M && rows_n == TILE_N) {
    c += args->c_at + place.i * args->c_i + place.j * args->c_j + place.m * args->c_m + place.n * args->c_n;
    bias += args->bias_at + place.i * args->bias_i + place.n * args->bias_n + place.j;
UNROLL
    for (int r = 0; r < THREAD_M; r += STORES_M_FIRST ? 4 : 1)
UNROLL
      for (int s = 0; s < THREAD_N; s += STORES_M_FIRST ? 1 : 4) {
        const int m = r / 4 * (THREADS_M * 4) + thread_m * 4 + r % 4;
        const int n = s / 4 * (THREADS_N * 4) + thread_n * 4 + s % 4;
#if STORES_M_FIRST
        JOIN(REAL, 4) four = {sums[r][s], sums[r + 1][s], sums[r + 2][s], sums[r + 3][s]};
        if (args->has_bias) four += bias[n * args->bias_n];
        *(global JOIN(REAL, 4)*)(c + m + n * args->c_n) = four;
#else
        JOIN(REAL, 4) four = {sums[r][s], sums[r][s + 1], sums[r][s + 2], sums[r][s + 3]};
        if (args->has_bias)
          four += (JOIN(REAL, 4))(bias[n * args->bias_n], bias[(n + 1) * args->bias_n], bias[(n + 2) * args->bias_n],
                                  bias[(n + 3) * args->bias_n]);
        *(global JOIN(REAL, 4)*)(c + m * args->c_m + n) = four;
#endif
      }
    return;
  }
#endif

UNROLL
  for (int pass = 0; pass < THREAD_M / PASS; ++pass) {
    // Written by whoever has the sums, read in the order of memory.
UNROLL
    for (int r = 0; r < PASS; ++r)
UNROLL
      for (int s = 0; s < THREAD_N; ++s)
        memory[((thread_m * PASS + r) * TILE_J + thread_j) * STAGE_PITCH + s / 4 * (THREADS_N * 4) + thread_n * 4 +
               s % 4] = sums[pass * PASS + r][s];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int index = thread; index < STAGE_ROWS * TILE_J * TILE_N; index += THREADS) {
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
      if (m < rows_m && n < rows_n && j < js)
        finish(c, bias, args, &place, place.j + j, place.m + m, place.n + n,
               memory[(staged * TILE_J + j) * STAGE_PITCH + n]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}
