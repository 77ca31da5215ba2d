// Pending all-reduces: sums over ranks, of dense gradients, that overlap with other work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/collectives.h"

namespace hotrow {

// counts[i] values of several arrays that are summed in one message.
struct SumPart {
  const float* values;
  size_t count;
};

// Copies the values and puts their all-reduce on the queue; does not wait. The ticket is unique in
// this process. Bytes and time are counted as stage "dense".
int64_t start_sum(const std::shared_ptr<Collectives>& ranks, std::string what,
                  const std::vector<SumPart>& parts);

// done: called once, in the queue's thread or at once, with the all-reduce's exception, or with
// null and the sums of all parts, one after the other: (count). The sums live while `done` runs. It
// must not throw or wait. Fails with InvalidArgument for a ticket that is unknown or finished, and
// when count differs from its start_sum.
void finish_sum(int64_t ticket, size_t count,
                std::function<void(std::exception_ptr, std::shared_ptr<const float>)> done);

}  // namespace hotrow
