// The word that a rank sends with each key when rows may lag behind their owners
// (ranks/stale_exchange.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace hotrow {

// 32 bits: kOnly, kNew, or the replica's version including the rank's own updates, sent or not. A
// flag requests the row's state, too, if the row comes.
struct StaleWord {
  static constexpr uint32_t kOnly = 0x80000000u;  // needed once, not kept
  static constexpr uint32_t kNew = 0x80000001u;   // to be kept, with its state

  static uint32_t of(uint32_t version, bool wants_state) {
    return (version & kVersion) | (wants_state ? kState : 0);
  }
  static bool is_kept(uint32_t word) { return word != kOnly; }
  static bool wants_state(uint32_t word) {
    return word == kNew || (word & (kFlag | kState)) == kState;
  }
  // Bytes of an array of words, or of counts, in a message.
  static size_t bytes(size_t count) { return (count * sizeof(uint32_t) + 7) / 8 * 8; }
  // How many updates a replica lags behind its owner's row. Negative: the rank has more updates
  // unsent than it lacks from other ranks, or the two versions do not belong together.
  static int32_t behind(uint32_t word, uint32_t now) {
    return static_cast<int32_t>((now - (word & kVersion)) << 2) >> 2;
  }

 private:
  static constexpr uint32_t kFlag = 0x80000000u, kState = 0x40000000u, kVersion = 0x3fffffffu;
};

// A subset of a message's keys, one bit each.
struct ChosenKeys {
  std::vector<uint8_t> bits;
  size_t count = 0;   // of them
  size_t kept = 0;    // of these, those whose rows are kept
  size_t states = 0;  // and whose state comes

  static size_t bytes(size_t keys) { return ((keys + 7) / 8 + 7) / 8 * 8; }

  void reset(size_t keys) {
    bits.assign(bytes(keys), 0);
    count = kept = states = 0;
  }
  void choose(size_t key, uint32_t word) {
    bits[key / 8] |= static_cast<uint8_t>(1u << (key % 8));
    note(word);
  }
  bool has(size_t key) const { return (bits[key / 8] >> (key % 8) & 1) != 0; }
  // words: (keys).
  void read(const std::byte* from, const uint32_t* words, size_t keys) {
    reset(keys);
    if (!bits.empty()) std::memcpy(bits.data(), from, bits.size());
    for (size_t key = 0; key < keys; ++key) {
      if (has(key)) note(words[key]);
    }
  }
  void write(std::byte* to) const {
    if (!bits.empty()) std::memcpy(to, bits.data(), bits.size());
  }

 private:
  void note(uint32_t word) {
    ++count;
    kept += StaleWord::is_kept(word);
    states += StaleWord::wants_state(word);
  }
};

}  // namespace hotrow
