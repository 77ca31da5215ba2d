// Runs the core's own tests; doctest's options select tests: -tc="*admission*". `--whole`: every
// combination of the matrices.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "tests/test_size.h"

int main(int argc, char** argv) {
  hotrow::read_test_size(argc, argv);
  return doctest::Context(argc, argv).run();
}
