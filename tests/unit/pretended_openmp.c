/* A runtime of OpenMP as far as the library asks one: openmp_test.cpp loads it. */
static int threads = 1;
static int is_parallel = 0;

void pretend(int max_threads, int in_parallel) {
  threads = max_threads;
  is_parallel = in_parallel;
}
int omp_get_max_threads(void) { return threads; }
int omp_in_parallel(void) { return is_parallel; }
