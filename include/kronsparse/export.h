// Marks what the shared library exports; everything else stays hidden. Users see
// the same visibility, so that exceptions keep one type on both sides.
#pragma once

#if defined(KRONSPARSE_STATIC)
#define KRONSPARSE_API
#else
#define KRONSPARSE_API __attribute__((visibility("default")))
#endif
