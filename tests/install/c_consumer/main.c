/* Uses the installed library from C: a problem is read and written again. */
#include <kronsparse/kronsparse.h>
#include <stdio.h>

int main(void) {
  kronsparse_problem problem;
  if (kronsparse_problem_parse("f32 batch_first B=2 1x2x3x1", &problem) != KRONSPARSE_OK) {
    fprintf(stderr, "%s\n", kronsparse_last_error());
    return 1;
  }
  printf("kronsparse %s from C\n", kronsparse_version());
  return 0;
}
