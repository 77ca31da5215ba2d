// Runs the core's own tests; doctest's options select some: -tc="*admission*".
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
