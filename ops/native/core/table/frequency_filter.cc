#include "core/table/frequency_filter.h"

#include <algorithm>
#include <cmath>

#include "core/base/hash.h"
#include "core/base/room.h"
#include "core/base/sealed_bytes.h"

namespace hotrow {
namespace {

constexpr uint64_t kFilterMagic = 0x31544c4654434852;  // "RHCTFLT1"

}  // namespace

FrequencyFilter::FrequencyFilter(const AdmissionOptions& options, size_t partitions)
    : occurrences_(options.occurrences) {
  const double share = static_cast<double>(options.expected_keys) /
                       static_cast<double>(std::max<size_t>(partitions, 1));
  const double keys = std::ceil(share + (partitions > 1 ? 4.0 * std::sqrt(share) : 0.0));
  const double rate = options.error_rate / 2.0;
  hashes_ = static_cast<uint32_t>(
      std::clamp<double>(std::round(-std::log2(rate)), 1.0, static_cast<double>(kMostHashes)));
  const double counters =
      std::ceil(-(hashes_ * keys) / std::log1p(-std::pow(rate, 1.0 / hashes_))) + 64.0;
  // A key is admitted at the latest by the occurrence after estimate `occurrences - 1`.
  log2_bits_ = 0;
  while (log2_bits_ < 5 && occurrences_ - 1 >= uint64_t{1} << (uint32_t{1} << log2_bits_)) {
    ++log2_bits_;
  }
  if (counters * (uint32_t{1} << log2_bits_) > 0x1p45) {
    fail(Code::kInvalidArgument,
         "an admission filter for %llu keys at error rate %g takes more than 4 TiB a partition; "
         "expect fewer keys or allow more errors",
         static_cast<unsigned long long>(options.expected_keys), options.error_rate);
  }
  keys_ = static_cast<uint64_t>(keys);
  counters_ = static_cast<uint64_t>(counters);
  younger_.words = empty_words();
}

AnonymousArray<uint32_t> FrequencyFilter::empty_words() const {
  return AnonymousArray<uint32_t>(((counters_ << log2_bits_) + 31) / 32);
}

uint32_t FrequencyFilter::counter(const Generation& generation, uint64_t position) const {
  const uint64_t bit = position << log2_bits_;
  const uint32_t mask = ~uint32_t{0} >> (32 - bits());
  return generation.words[bit >> 5] >> (bit & 31) & mask;
}

uint32_t FrequencyFilter::estimate(const Generation& generation, const uint64_t* positions) const {
  uint32_t smallest = ~uint32_t{0};
  for (uint32_t i = 0; i < hashes_ && smallest > 0; ++i) {
    smallest = std::min(smallest, counter(generation, positions[i]));
  }
  return smallest;
}

void FrequencyFilter::raise(uint64_t position, uint32_t count) {
  const uint32_t now = counter(younger_, position);
  if (now >= count) return;
  const uint64_t bit = position << log2_bits_;
  if (recording_) changes_.push_back({bit >> 5, younger_.words[bit >> 5]});
  younger_.words[bit >> 5] += (count - now) << (bit & 31);
}

bool FrequencyFilter::count_occurrences(int64_t key, uint32_t times) {
  if (times == 0) return false;
  // k positions from two hashes (Kirsch, Mitzenmacher: Less Hashing, Same Performance, 2006),
  // mixed anew because the table's partition and shard fix bits of mix64(key).
  uint64_t hash = mix64(static_cast<uint64_t>(key) ^ 0x8e9d5a2b7f4c3160ULL);
  const uint64_t stride = mix64(hash ^ 0xd6e8feb86659fd93ULL) | 1;
  uint64_t positions[kMostHashes];
  for (uint32_t i = 0; i < hashes_; ++i, hash += stride) {
    positions[i] = static_cast<uint64_t>(static_cast<unsigned __int128>(hash) * counters_ >> 64);
  }
  const uint32_t young = estimate(younger_, positions);
  const uint32_t old = older_.words.size() > 0 ? estimate(older_, positions) : 0;
  // After a false hit in the younger generation, the older one may have the higher estimate.
  const uint64_t count = static_cast<uint64_t>(std::max(young, old)) + times;
  AnonymousArray<uint32_t> fresh;
  const bool next = count < occurrences_ && young == 0 && younger_.keys >= keys_;
  if (next) fresh = empty_words();
  if (recording_) {
    make_room(changes_, hashes_ + 1);
    make_room(dropped_);
  }
  // From here on, nothing fails.
  if (young == 0 && old > 0 && older_.waiting > 0) --older_.waiting;
  if (count >= occurrences_) {
    if (young > 0 && younger_.waiting > 0) --younger_.waiting;
    return true;
  }
  if (young == 0) {
    if (next) {
      if (recording_) {
        changes_.push_back({kNextGeneration, 0});
        dropped_.push_back(std::move(older_));
      }
      older_ = std::move(younger_);
      younger_ = Generation();
      younger_.words = std::move(fresh);
    }
    ++younger_.keys;
    ++younger_.waiting;
  }
  for (uint32_t i = 0; i < hashes_; ++i) raise(positions[i], static_cast<uint32_t>(count));
  return false;
}

void FrequencyFilter::begin_changes() {
  changes_.clear();
  younger_before_ = {younger_.keys, younger_.waiting};
  older_before_ = {older_.keys, older_.waiting};
  recording_ = true;
}

void FrequencyFilter::keep_changes() noexcept {
  changes_.clear();
  dropped_.clear();
  recording_ = false;
}

void FrequencyFilter::undo_changes() noexcept {
  for (; !changes_.empty(); changes_.pop_back()) {
    const auto [word, before] = changes_.back();
    if (word == kNextGeneration) {
      younger_ = std::move(older_);
      older_ = std::move(dropped_.back());
      dropped_.pop_back();
    } else {
      younger_.words[word] = before;
    }
  }
  younger_.keys = younger_before_.keys;
  younger_.waiting = younger_before_.waiting;
  older_.keys = older_before_.keys;
  older_.waiting = older_before_.waiting;
  keep_changes();
}

void FrequencyFilter::clear() {
  younger_ = Generation();
  older_ = Generation();
  younger_.words = empty_words();
}

// Magic; occurrences, hashes, bits, n, m; for both generations: keys, waiting, words (0: none yet)
// and the words.
std::vector<uint8_t> FrequencyFilter::save() const {
  SealedBytesWriter bytes;
  bytes.reserve(96 + this->bytes());
  bytes.put(kFilterMagic);
  for (const uint64_t value :
       {uint64_t{occurrences_}, uint64_t{hashes_}, uint64_t{bits()}, keys_, counters_}) {
    bytes.put(value);
  }
  for (const Generation* generation : {&younger_, &older_}) {
    bytes.put(generation->keys);
    bytes.put(generation->waiting);
    bytes.put(static_cast<uint64_t>(generation->words.size()));
    bytes.put_array(generation->words.data(), generation->words.size());
  }
  return bytes.seal();
}

void FrequencyFilter::restore(const uint8_t* data, size_t size) {
  SealedBytesReader bytes("admission filter", data, size);
  if (bytes.get<uint64_t>() != kFilterMagic) {
    fail(Code::kFailedPrecondition,
         "the saved admission state is not of a filter; restore it with the same admission");
  }
  for (const uint64_t value :
       {uint64_t{occurrences_}, uint64_t{hashes_}, uint64_t{bits()}, keys_, counters_}) {
    if (bytes.get<uint64_t>() != value) {
      fail(Code::kFailedPrecondition,
           "the saved admission filter is of other options; restore it with the same occurrences, "
           "expected keys, error rate and shards");
    }
  }
  Generation generations[2];
  for (Generation& generation : generations) {
    generation.keys = bytes.get<uint64_t>();
    generation.waiting = bytes.get<uint64_t>();
    if (generation.keys > keys_ || generation.waiting > generation.keys) {
      bytes.damaged("has a count out of range");
    }
    const uint64_t words = bytes.get<uint64_t>();
    const bool may_be_absent = &generation == &generations[1] && generation.keys == 0;
    if (words != younger_.words.size() && !(may_be_absent && words == 0)) {
      bytes.damaged("has a wrong length");
    }
    if (words > bytes.left() / sizeof(uint32_t)) bytes.damaged("ends early");
    generation.words = AnonymousArray<uint32_t>(words);
    bytes.get_array(generation.words.data(), words);
  }
  bytes.expect_end();
  younger_ = std::move(generations[0]);
  older_ = std::move(generations[1]);
}

}  // namespace hotrow
