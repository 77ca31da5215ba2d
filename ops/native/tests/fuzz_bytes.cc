// Random bytes for everything in the core that reads bytes: admission filters, the state of a
// table, a manifest. The first byte chooses the target; corrected checksums let the fuzzer reach
// the code behind them.
#include <farmhash.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "core/base/status.h"
#include "core/store/manifest.h"
#include "tests/one_table.h"

namespace hotrow {
namespace {

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

// Fails unless `call` succeeds or refuses the bytes with one of these codes. True: it succeeded.
template <typename Call>
bool accepted(Call&& call) {
  try {
    call();
    return true;
  } catch (const Error& error) {
    expect(error.code() == Code::kDataLoss || error.code() == Code::kFailedPrecondition,
           error.what());
    return false;
  }
}

void fix_checksum(std::vector<uint8_t>* bytes) {
  if (bytes->size() < sizeof(uint64_t)) return;
  const size_t size = bytes->size() - sizeof(uint64_t);
  const uint64_t sum = util::Fingerprint64(reinterpret_cast<const char*>(bytes->data()), size);
  std::memcpy(bytes->data() + size, &sum, sizeof(sum));
}

// Bytes of a good state with pieces of the input written over them, so that the input need not
// find the right lengths.
std::vector<uint8_t> overwritten(std::vector<uint8_t> good, const uint8_t* data, size_t size) {
  while (size >= 4 && !good.empty()) {
    const size_t at = (size_t{data[0]} << 8 | data[1]) % good.size();
    const size_t count = std::min<size_t>({size_t{data[2]} % 9, size - 3, good.size() - at});
    std::memcpy(good.data() + at, data + 3, count);
    data += 3 + count;
    size -= 3 + count;
  }
  if (size > 0) good.resize(good.size() - std::min<size_t>(good.size(), data[0]));
  return good;
}

void fuzz_admission(AdmissionKind kind, bool over, const uint8_t* data, size_t size) {
  AdmissionOptions options;
  options.kind = kind;
  options.occurrences = 3;
  options.expected_keys = 20;
  options.error_rate = 0.05;
  const auto filter = make_admission_filter(options, 1);
  for (int64_t key = 0; key < 30; ++key) filter->count_occurrences(key % 25, 1);
  const std::vector<uint8_t> before = filter->save();
  std::vector<uint8_t> bytes =
      over ? overwritten(before, data, size) : std::vector<uint8_t>(data, data + size);
  if (over) fix_checksum(&bytes);
  if (!accepted([&] { filter->restore(bytes.data(), bytes.size()); })) {
    expect(filter->save() == before, "refused bytes changed an admission filter");
    return;
  }
  // An accepted state is a complete filter.
  expect(filter->save() == bytes, "an admission filter saves other bytes than it restored");
  for (int64_t key = -50; key < 50; ++key) {
    for (uint32_t i = 0; i < options.occurrences && !filter->count_occurrences(key, 1); ++i) {
      expect(i + 1 < options.occurrences, "a key is late");
    }
  }
  (void)filter->waiting();
}

// Places that a state claims: the fifth number of each partition (Table::state_in_lock); 0 when
// the bytes end early.
uint64_t places_of(const std::vector<uint8_t>& state) {
  uint64_t places = 0;
  size_t at = 44;
  const auto number = [&](uint64_t* value) {
    if (at > state.size() || state.size() - at < sizeof(*value)) return false;
    std::memcpy(value, state.data() + at, sizeof(*value));
    at += sizeof(*value);
    return true;
  };
  for (size_t p = 0; p < Table::kPartitions; ++p) {
    uint64_t own = 0, tombstones = 0, filter = 0;
    at += 4 * sizeof(uint64_t);
    if (!number(&own) || !number(&tombstones) || tombstones > state.size()) return 0;
    at += tombstones * 12;
    if (!number(&filter) || filter > state.size()) return 0;
    at += filter;
    places += std::min<uint64_t>(own, uint64_t{1} << 40);
  }
  return places;
}

void fuzz_state(bool over, const uint8_t* data, size_t size) {
  TableOptions options = plain_options();
  options.expiry.after_steps = 2;
  options.expiry.sweep_steps = 2;
  Table table("t", options, 1, false);
  table.keep_tombstones();
  train(table, {1, 2}, 1.0f);
  for (int step = 0; step < 4; ++step) train(table, {3}, 1.0f);
  const std::vector<uint8_t> before = table.state();
  std::vector<uint8_t> bytes =
      over ? overwritten(before, data, size) : std::vector<uint8_t>(data, data + size);
  if (over) fix_checksum(&bytes);
  // Up to the memory of the machine, a state gets the places that it claims, which takes time.
  const uint64_t places = places_of(bytes);
  if (places > 5000 && places <= machine_memory()) return;
  if (!accepted([&] { table.set_state(bytes.data(), bytes.size()); })) {
    expect(table.state() == before, "refused bytes changed a table");
    return;
  }
  const std::vector<uint8_t> after = table.state();
  table.set_state(after.data(), after.size());
  expect(table.state() == after, "a table's state is not what was set");
  if (table.step() < Partition::kFree - 10) {
    train(table, {1, 4}, 1.0f);
    expect(exported(table).size() == table.size(), "an export lost rows");
  }
}

void fuzz_manifest(const uint8_t* data, size_t size) {
  static const std::string path = "/dev/shm/hotrow-fuzz-" + std::to_string(::getpid());
  FILE* file = std::fopen(path.c_str(), "wb");
  expect(file != nullptr && std::fwrite(data, 1, size, file) == size && std::fclose(file) == 0,
         "no room in /dev/shm");
  (void)accepted([&] {
    const Manifest manifest = read_manifest(path);
    for (const ManifestTable& table : manifest.tables) expect(table.width > 0, "width 0");
  });
  std::remove(path.c_str());
}

}  // namespace
}  // namespace hotrow

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using hotrow::AdmissionKind;
  if (size == 0) return 0;
  const uint8_t choice = data[0] % 7;
  ++data, --size;
  switch (choice) {
    case 0:
      hotrow::fuzz_admission(AdmissionKind::kCounter, false, data, size);
      break;
    case 1:
      hotrow::fuzz_admission(AdmissionKind::kCounter, true, data, size);
      break;
    case 2:
      hotrow::fuzz_admission(AdmissionKind::kFilter, false, data, size);
      break;
    case 3:
      hotrow::fuzz_admission(AdmissionKind::kFilter, true, data, size);
      break;
    case 4:
      hotrow::fuzz_state(false, data, size);
      break;
    case 5:
      hotrow::fuzz_state(true, data, size);
      break;
    default:
      hotrow::fuzz_manifest(data, size);
  }
  return 0;
}
