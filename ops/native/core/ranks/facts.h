// Facts that the ranks of a call exchange before keys, including whether a rank failed. R ranks.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "core/comm/collectives.h"
#include "core/table/training.h"

namespace hotrow {

// A rank's failure in its part of a batch.
struct RankFailure {
  Code code = Code::kOk;
  std::string message;

  // Runs a part that may fail and keeps its failure.
  template <typename Part>
  static RankFailure of(Part&& part) {
    try {
      part();
    } catch (const Error& e) {
      return {e.code(), e.what()};
    } catch (const std::bad_alloc&) {
      return {Code::kResourceExhausted, "out of memory for the keys of a batch"};
    }
    return {};
  }
};

// Runs a part of a step. A failure here ends the collectives of all ranks, unless all ranks agreed
// on it. Throws the failure of the first rank that failed.
template <typename Part>
void for_all_ranks(Collectives& ranks, Part&& part) {
  try {
    part();
  } catch (const AgreedError&) {
    throw;
  } catch (const Error& e) {
    ranks.fail_and_throw(e.code(), e.what());
  } catch (const std::bad_alloc&) {
    ranks.fail_and_throw(Code::kResourceExhausted, "out of memory in a step");
  } catch (const std::exception& e) {
    ranks.fail_and_throw(Code::kInternal, e.what());
  }
}

class RankFacts {
 public:
  // Puts collectives on the queue, or runs them in its thread.
  using Run = std::function<void(const char* what, const Collectives::Work& work)>;

  // count: numbers from each rank to each other, the same on all.
  RankFacts(Collectives& ranks, size_t count);

  int64_t* to(size_t rank) { return sent_.data() + rank * (kHead + count_) + kHead; }
  const int64_t* from(size_t rank) const {
    return received_.data() + rank * (kHead + count_) + kHead;
  }
  // Throws the first rank's failure on all ranks alike: an AgreedError, "rank 1: ...". Fails when
  // the ranks are in different calls. features: how many of the call each table has, (T); how:
  // "insert".
  void exchange(const Run& run, const RankFailure& failure, const LayerCall& call,
                const std::vector<size_t>& features, const char* how);

 private:
  static constexpr size_t kHead = 2;  // status, call
  [[noreturn]] void fail_together(const Run& run, const RankFailure& failure);

  Collectives& ranks_;
  size_t count_, size_;
  std::vector<int64_t> sent_, received_;
};

}  // namespace hotrow
