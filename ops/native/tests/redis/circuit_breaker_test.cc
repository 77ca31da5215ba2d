#include "core/redis/circuit_breaker.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace hotrow {
namespace {

using Breaker = CircuitBreaker;
using Pass = Breaker::Pass;
using State = Breaker::State;
using std::chrono::milliseconds;

// A breaker and a clock.
struct Case {
  Breaker breaker{Breaker::Options{}};
  Breaker::Time now{};

  void fail(bool certain = false) { breaker.fail(now, Code::kUnavailable, "gone", certain); }
  Pass admit_after(int ms) {
    now += milliseconds(ms);
    return breaker.admit(now);
  }
};

}  // namespace

TEST_CASE("circuit_breaker: five failures in a row open it, others do not") {
  Case a;
  for (int i = 0; i < 4; ++i) a.fail();
  CHECK(a.breaker.state() == State::kClosed);
  a.breaker.succeed();
  for (int i = 0; i < 4; ++i) a.fail();
  CHECK(a.admit_after(0) == Pass::kAsk);
  a.fail();
  CHECK(a.breaker.state() == State::kOpen);
  CHECK(a.admit_after(0) == Pass::kRefused);
  CHECK(a.breaker.openings() == 1);
  CHECK(std::string(a.breaker.last_failure().what()) == "gone");
}

TEST_CASE("circuit_breaker: two failures half a second apart open it, and a certain one") {
  Case a;
  a.fail();
  a.now += milliseconds(499);
  a.fail();
  CHECK(a.breaker.state() == State::kClosed);
  a.now += milliseconds(1);
  a.fail();
  CHECK(a.breaker.state() == State::kOpen);
  Case b;
  b.fail(true);
  CHECK(b.breaker.state() == State::kOpen);
}

TEST_CASE("circuit_breaker: one probes, the pause doubles up to five seconds") {
  Case a;
  a.fail(true);
  for (int pause = 100; pause < 20000; pause = 2 * pause) {
    const int most = std::min(pause, 5000);
    CHECK(a.admit_after(most / 2 - 1) == Pass::kRefused);
    CHECK(a.admit_after(most - most / 2 + 1) == Pass::kProbe);
    CHECK(a.breaker.state() == State::kHalfOpen);
    CHECK(a.admit_after(100000) == Pass::kRefused);
    a.fail();
    CHECK(a.breaker.state() == State::kOpen);
  }
  CHECK(a.admit_after(5000) == Pass::kProbe);
  a.breaker.succeed();
  CHECK(a.breaker.state() == State::kClosed);
  CHECK(a.admit_after(0) == Pass::kAsk);
  a.fail(true);
  CHECK(a.admit_after(100) == Pass::kProbe);  // from the beginning
}

TEST_CASE("circuit_breaker: who gives a probe up leaves it to the next one") {
  Case a;
  a.fail(true);
  CHECK(a.admit_after(100) == Pass::kProbe);
  a.breaker.give_up();
  CHECK(a.admit_after(0) == Pass::kProbe);
}

TEST_CASE("circuit_breaker: late failures of calls that began before do not lengthen the pause") {
  Case a;
  a.fail(true);
  for (int i = 0; i < 50; ++i) a.fail(true);
  CHECK(a.breaker.openings() == 1);
  CHECK(a.admit_after(100) == Pass::kProbe);
}

}  // namespace hotrow
