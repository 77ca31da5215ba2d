// One run of a session, and how it ended.
#pragma once

#include <tensorflow/c/c_api.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "wire/tensor.h"

namespace hotrow_server {

using Clock = std::chrono::system_clock;
using Deadline = std::optional<Clock::time_point>;

inline bool same(const TF_Output& a, const TF_Output& b) {
  return a.oper == b.oper && a.index == b.index;
}

struct Run {
  std::vector<TF_Output> feeds;
  std::vector<TF_Tensor*> inputs;  // for the feeds; from `owned`, or from the signature's defaults
  std::vector<Tensor> owned;
  std::vector<TF_Output> fetches;  // one may occur twice
  Deadline deadline;
  // How long runs of this kind take, or 0; kept up to date.
  std::atomic<int64_t>* typical_nanos = nullptr;
  // Inputs of another shape than their signature declares, as text.
  std::string undeclared;
};

// The results of a run, in the order of the fetches.
class Results {
 public:
  Results() = default;
  // values: for each fetch its place in `owned`.
  Results(std::vector<Tensor> owned, const std::vector<size_t>& places) : owned_(std::move(owned)) {
    for (const size_t place : places) values_.push_back(owned_[place].get());
  }
  // Uses the results of another run, which it keeps alive.
  Results(std::shared_ptr<const Results> others, const std::vector<size_t>& places)
      : others_(std::move(others)) {
    for (const size_t place : places) values_.push_back((*others_)[place]);
  }
  size_t size() const { return values_.size(); }
  const TF_Tensor* operator[](size_t i) const { return values_[i]; }

 private:
  std::vector<Tensor> owned_;
  std::shared_ptr<const Results> others_;
  std::vector<const TF_Tensor*> values_;
};

class Outcome {
 public:
  explicit Outcome(Results results) : results_(std::move(results)) {}
  explicit Outcome(std::exception_ptr failure) : failure_(std::move(failure)) {}
  // Throws the run's failure.
  const Results& get() const {
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    return results_;
  }

 private:
  Results results_;
  std::exception_ptr failure_;
};

// Runs work and catches its results or its exception.
template <typename Work>
Outcome outcome_of(Work&& work) {
  try {
    return Outcome(work());
  } catch (...) {
    return Outcome(std::current_exception());
  }
}

// Called once with the outcome, in any thread.
using Ended = std::function<void(const Outcome&)>;

}  // namespace hotrow_server
