#include "core/table/admission.h"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <random>

#include "core/base/hash.h"
#include "core/base/sealed_bytes.h"
#include "core/table/frequency_filter.h"
#include "core/table/occurrence_counter.h"
#include "tests/error_code.h"

namespace hotrow {
namespace {

AdmissionOptions counter(uint32_t occurrences) {
  AdmissionOptions options;
  options.kind = AdmissionKind::kCounter;
  options.occurrences = occurrences;
  return options;
}

AdmissionOptions filter(uint32_t occurrences, uint64_t expected_keys, double error_rate) {
  AdmissionOptions options;
  options.kind = AdmissionKind::kFilter;
  options.occurrences = occurrences;
  options.expected_keys = expected_keys;
  options.error_rate = error_rate;
  return options;
}

// A key of partition 7 of 32, as in a table.
int64_t partition_key(std::mt19937_64& random) {
  for (;;) {
    const uint64_t key = random();
    if (mix64(key) >> 59 == 7) return static_cast<int64_t>(key);
  }
}

std::vector<int64_t> partition_keys(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> keys(count);
  for (int64_t& key : keys) key = partition_key(random);
  return keys;
}

// Share of new keys that are admitted too early, when `others` other keys each occurred as often as
// possible without being admitted.
double early_share(const AdmissionOptions& options, size_t others, size_t probes) {
  const auto admission = make_admission_filter(options, 1);
  for (const int64_t key : partition_keys(others, 1)) {
    for (uint32_t i = 1; i < options.occurrences; ++i) admission->count_occurrences(key, 1);
  }
  const std::vector<uint8_t> loaded = admission->save();
  size_t early = 0;
  size_t since = 0;
  for (const int64_t key : partition_keys(probes, 2)) {
    bool admitted = false;
    for (uint32_t i = 1; i < options.occurrences; ++i)
      admitted |= admission->count_occurrences(key, 1);
    early += admitted;
    // The probes themselves must not fill the filter.
    if (++since == 64) {
      admission->restore(loaded.data(), loaded.size());
      since = 0;
    }
  }
  return static_cast<double>(early) / static_cast<double>(probes);
}

}  // namespace

TEST_CASE("admission: without admission there is no filter") {
  CHECK(make_admission_filter(AdmissionOptions(), 32) == nullptr);
}

TEST_CASE("admission: options out of range are refused") {
  CHECK(error_code([] { make_admission_filter(counter(0), 1); }) == Code::kInvalidArgument);
  CHECK(error_code([] { make_admission_filter(filter(2, 0, 0.01), 1); }) == Code::kInvalidArgument);
  CHECK(error_code([] { make_admission_filter(filter(2, 9, 0.0), 1); }) == Code::kInvalidArgument);
  CHECK(error_code([] { make_admission_filter(filter(2, 9, 1.0), 1); }) == Code::kInvalidArgument);
  CHECK(error_code([] { make_admission_filter(filter(2, 9, NAN), 1); }) == Code::kInvalidArgument);
  CHECK(error_code([] { make_admission_filter(filter(2, ~0ull, 1e-9), 1); }) ==
        Code::kInvalidArgument);
  AdmissionOptions unknown;
  unknown.kind = static_cast<AdmissionKind>(9);
  CHECK(error_code([&] { make_admission_filter(unknown, 1); }) == Code::kInvalidArgument);
}

TEST_CASE("admission counter: a key is admitted with its n-th occurrence and then forgotten") {
  const auto admission = make_admission_filter(counter(3), 32);
  for (const int64_t key : {int64_t{0}, int64_t{-1}, INT64_MIN, INT64_MAX}) {
    for (int round = 0; round < 2; ++round) {
      CHECK_FALSE(admission->count_occurrences(key, 1));
      CHECK(admission->waiting() == 1);
      CHECK_FALSE(admission->count_occurrences(key, 1));
      CHECK(admission->count_occurrences(key, 1));
      CHECK(admission->waiting() == 0);
    }
  }
  CHECK(admission->count_occurrences(5, 3));
  CHECK(admission->count_occurrences(5, ~0u));
  CHECK_FALSE(admission->count_occurrences(5, 2));
  CHECK(admission->count_occurrences(5, ~0u));
}

TEST_CASE("admission counter: agrees with a map over random occurrences, growing and shrinking") {
  for (const uint32_t occurrences : {2u, 5u, 300u}) {
    OccurrenceCounter admission(counter(occurrences));
    std::map<int64_t, uint64_t> model;
    std::mt19937_64 random(occurrences);
    const std::vector<int64_t> keys = partition_keys(20000, 3);
    // First many keys, then few, again and again: waiting keys come and go.
    for (size_t phase = 0; phase < 6; ++phase) {
      const size_t range = phase % 2 == 0 ? keys.size() : 50;
      for (size_t i = 0; i < 30000; ++i) {
        const int64_t key = keys[random() % range];
        const uint32_t times = 1 + static_cast<uint32_t>(random() % (occurrences / 2));
        const bool admitted = (model[key] += times) >= occurrences;
        if (admitted) model.erase(key);
        REQUIRE(admission.count_occurrences(key, times) == admitted);
      }
      REQUIRE(admission.waiting() == model.size());
    }
  }
}

TEST_CASE("admission counter: its memory follows the waiting keys up and down") {
  OccurrenceCounter admission(counter(2));
  CHECK(admission.bytes() == 0);
  CHECK(admission.count_occurrences(1, 1) == admission.count_occurrences(2, 1));
  CHECK(admission.count_occurrences(1, 1) == admission.count_occurrences(2, 1));
  const size_t empty = admission.bytes();  // the least array
  const std::vector<int64_t> keys = partition_keys(200000, 4);
  for (size_t i = 0; i < keys.size(); ++i) {
    admission.count_occurrences(keys[i], 1);
    if (i > 1000) REQUIRE(admission.bytes() <= 33 * (i + 1) + empty);
  }
  CHECK(admission.waiting() == keys.size());
  for (const int64_t key : keys) REQUIRE(admission.count_occurrences(key, 1));
  CHECK(admission.waiting() == 0);
  CHECK(admission.bytes() == empty);
}

TEST_CASE("admission counter: keys that all want the last slot are held apart") {
  // mix64 is a bijection; these keys are found by their hashes, all at the end of the array.
  OccurrenceCounter admission(counter(2));
  std::vector<int64_t> keys;
  for (uint64_t i = 0; i < 300; ++i) {
    uint64_t x = 0x07ffffffffffffffULL - i;  // partition 0, every other bit of the order set
    x ^= x >> 31 ^ x >> 62;
    x *= 0x319642b2d24d8ec3ULL;
    x ^= x >> 27 ^ x >> 54;
    x *= 0x96de1b173f119089ULL;
    x ^= x >> 30 ^ x >> 60;
    x -= 0x9e3779b97f4a7c15ULL;
    REQUIRE(mix64(x) == 0x07ffffffffffffffULL - i);
    keys.push_back(static_cast<int64_t>(x));
  }
  for (const int64_t key : keys) REQUIRE_FALSE(admission.count_occurrences(key, 1));
  CHECK(admission.waiting() == keys.size());
  CHECK(admission.bytes() < 100000);
  for (const int64_t key : keys) REQUIRE(admission.count_occurrences(key, 1));
  CHECK(admission.waiting() == 0);
}

TEST_CASE("admission counter: the saved bytes depend on the counts alone") {
  const std::vector<int64_t> keys = partition_keys(3000, 5);
  OccurrenceCounter up(counter(9));
  OccurrenceCounter down(counter(9));
  for (size_t i = 0; i < keys.size(); ++i) up.count_occurrences(keys[i], 1 + i % 4);
  for (size_t i = keys.size(); i-- > 0;) {
    down.count_occurrences(keys[i] ^ 1, 1);
    down.count_occurrences(keys[i], 1 + i % 4);
  }
  CHECK(up.save() != down.save());
  for (const int64_t key : keys) down.count_occurrences(key ^ 1, 9);
  CHECK(up.save() == down.save());
}

TEST_CASE("admission: no occurrences change nothing and admit no key") {
  for (const AdmissionOptions& options :
       {counter(1), counter(3), filter(1, 9, 0.1), filter(3, 9, 0.1)}) {
    const auto admission = make_admission_filter(options, 1);
    CHECK_FALSE(admission->count_occurrences(7, 0));
    if (options.occurrences > 1)
      CHECK_FALSE(admission->count_occurrences(8, options.occurrences - 1));
    const std::vector<uint8_t> before = admission->save();
    CHECK_FALSE(admission->count_occurrences(7, 0));
    CHECK_FALSE(admission->count_occurrences(8, 0));
    CHECK(admission->save() == before);
    CHECK(admission->count_occurrences(8, 1));
  }
}

TEST_CASE("admission: a restored filter goes on as the saved one") {
  for (const AdmissionOptions& options : {counter(4), filter(4, 500, 0.02)}) {
    const auto saved = make_admission_filter(options, 1);
    const auto restored = make_admission_filter(options, 1);
    const std::vector<int64_t> keys = partition_keys(900, 6);
    std::mt19937_64 random(7);
    for (int i = 0; i < 1500; ++i) saved->count_occurrences(keys[random() % keys.size()], 1);
    restored->count_occurrences(1, 1);
    const std::vector<uint8_t> bytes = saved->save();
    restored->restore(bytes.data(), bytes.size());
    CHECK(restored->waiting() == saved->waiting());
    CHECK(restored->save() == bytes);
    for (int i = 0; i < 3000; ++i) {
      const int64_t key = keys[random() % keys.size()];
      REQUIRE(saved->count_occurrences(key, 1) == restored->count_occurrences(key, 1));
    }
    CHECK(restored->save() == saved->save());
    restored->clear();
    CHECK(restored->waiting() == 0);
    CHECK(restored->save() == make_admission_filter(options, 1)->save());
  }
}

TEST_CASE("admission: damaged bytes are refused and change nothing") {
  for (const AdmissionOptions& options : {counter(4), filter(4, 20, 0.1)}) {
    const auto saved = make_admission_filter(options, 1);
    for (const int64_t key : partition_keys(30, 8)) saved->count_occurrences(key, 2);
    const std::vector<uint8_t> bytes = saved->save();
    const auto other = make_admission_filter(options, 1);
    other->count_occurrences(3, 1);
    const std::vector<uint8_t> before = other->save();
    for (size_t size = 0; size < bytes.size(); ++size) {
      REQUIRE(error_code([&] { other->restore(bytes.data(), size); }) == Code::kDataLoss);
    }
    for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      std::vector<uint8_t> damaged = bytes;
      damaged[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
      REQUIRE(error_code([&] { other->restore(damaged.data(), damaged.size()); }) ==
              Code::kDataLoss);
    }
    CHECK(other->save() == before);
  }
}

TEST_CASE("admission: bytes of other options are refused by name") {
  const auto code = [](const AdmissionOptions& from, const AdmissionOptions& to) {
    const std::vector<uint8_t> bytes = make_admission_filter(from, 1)->save();
    return error_code([&] { make_admission_filter(to, 1)->restore(bytes.data(), bytes.size()); });
  };
  CHECK(code(counter(4), counter(4)) == Code::kOk);
  CHECK(code(counter(4), counter(5)) == Code::kFailedPrecondition);
  CHECK(code(counter(4), filter(4, 20, 0.1)) == Code::kFailedPrecondition);
  CHECK(code(filter(4, 20, 0.1), counter(4)) == Code::kFailedPrecondition);
  CHECK(code(filter(4, 20, 0.1), filter(4, 20, 0.1)) == Code::kOk);
  CHECK(code(filter(4, 20, 0.1), filter(4, 21, 0.1)) == Code::kFailedPrecondition);
  CHECK(code(filter(4, 20, 0.1), filter(4, 20, 0.01)) == Code::kFailedPrecondition);
  CHECK(code(filter(4, 20, 0.1), filter(3, 20, 0.1)) == Code::kFailedPrecondition);
}

TEST_CASE("admission filter: a key is never admitted late, however full the filter") {
  for (const uint32_t occurrences : {2u, 3u, 4u, 16u, 17u, 256u, 70000u}) {
    CAPTURE(occurrences);
    FrequencyFilter admission(filter(occurrences, 300, 0.01), 1);
    std::mt19937_64 random(9);
    const uint32_t most = std::max(1u, occurrences / 3);
    std::map<int64_t, uint64_t> counts;
    // Each key comes again within 300 others: the last 200 keys are drawn from, and one leaves.
    std::vector<int64_t> keys = partition_keys(200, 10);
    for (int i = 0; i < 20000; ++i) {
      const size_t at = static_cast<size_t>(i) % keys.size();
      const uint32_t times = 1 + static_cast<uint32_t>(random() % most);
      const uint64_t count = counts[keys[at]] += times;
      const bool admitted = admission.count_occurrences(keys[at], times);
      if (count >= occurrences) REQUIRE(admitted);
      if (admitted || random() % 400 == 0) keys[at] = partition_key(random);
    }
  }
}

TEST_CASE("admission filter: keys are early with at most the stated probability") {
  for (const uint32_t occurrences : {2u, 4u, 30u}) {
    for (const double rate : {0.2, 0.01, 0.002}) {
      const size_t probes = 40000;
      const double measured = early_share(filter(occurrences, 5000, rate), 5000, probes);
      MESSAGE("occurrences " << occurrences << ", stated " << rate << ", measured " << measured);
      // Half of the rate belongs to the older generation. Five deviations of the measurement.
      CHECK(measured <= rate / 2 + 5 * std::sqrt(rate / 2 / probes));
      CHECK(measured > 0.0);
    }
  }
}

TEST_CASE("admission filter: the stated probability holds over two generations") {
  const double rate = 0.05;
  const AdmissionOptions options = filter(3, 4000, rate);
  FrequencyFilter admission(options, 1);
  for (const int64_t key : partition_keys(7999, 11)) admission.count_occurrences(key, 2);
  const std::vector<uint8_t> loaded = admission.save();
  size_t early = 0;
  const size_t probes = 20000;
  for (const int64_t key : partition_keys(probes, 12)) {
    early += admission.count_occurrences(key, 1) || admission.count_occurrences(key, 1);
    admission.restore(loaded.data(), loaded.size());
  }
  const double measured = static_cast<double>(early) / probes;
  MESSAGE("stated " << rate << ", measured over two full generations " << measured);
  CHECK(measured <= rate + 5 * std::sqrt(rate / probes));
  CHECK(measured > rate / 4);
}

TEST_CASE("admission filter: the second generation takes memory only when it is needed") {
  FrequencyFilter admission(filter(4, 1000, 0.01), 1);
  const size_t one = admission.bytes();
  const std::vector<int64_t> keys = partition_keys(1100, 13);
  for (size_t i = 0; i < 1000; ++i) admission.count_occurrences(keys[i], 1);
  CHECK(admission.bytes() == one);
  CHECK(admission.waiting() <= 1000);
  CHECK(admission.waiting() > 980);
  for (size_t i = 1000; i < 1100; ++i) admission.count_occurrences(keys[i], 1);
  CHECK(admission.bytes() == 2 * one);
  CHECK(admission.waiting() <= 1100);
  CHECK(admission.waiting() > 1080);
  // 11 counters of 2 bits a key.
  CHECK(one < 1000 * 3);
}

TEST_CASE("admission filter: keys that never come again are forgotten") {
  FrequencyFilter admission(filter(2, 1000, 0.01), 1);
  const int64_t first = 42;
  admission.count_occurrences(first, 1);
  for (const int64_t key : partition_keys(2200, 14)) admission.count_occurrences(key, 1);
  CHECK_FALSE(admission.count_occurrences(first, 1));
  CHECK(admission.count_occurrences(first, 1));
  CHECK(admission.waiting() < 2200);
}

TEST_CASE("admission filter: a partition has its share and four deviations") {
  const FrequencyFilter whole(filter(2, 32000, 0.01), 1);
  const FrequencyFilter part(filter(2, 32000, 0.01), 32);
  CHECK(whole.keys_per_generation() == 32000);
  CHECK(part.keys_per_generation() == 1127);
  CHECK(whole.hashes() == 8);
  CHECK(whole.bits() == 1);
  CHECK(FrequencyFilter(filter(3, 9, 0.01), 1).bits() == 2);
  CHECK(FrequencyFilter(filter(16, 9, 0.01), 1).bits() == 4);
  CHECK(FrequencyFilter(filter(17, 9, 0.01), 1).bits() == 8);
  CHECK(FrequencyFilter(filter(257, 9, 0.01), 1).bits() == 16);
  CHECK(FrequencyFilter(filter(~0u, 9, 0.01), 1).bits() == 32);
}

}  // namespace hotrow
