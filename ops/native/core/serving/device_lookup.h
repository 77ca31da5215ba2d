// A lookup whose outputs are on a GPU: the GPU writes those whose rows it has, the host finds the
// rows of the others as in any lookup and pools them, and the GPU copies them to their places.
#pragma once

#include <memory>

#include "core/serving/device_rows.h"
#include "core/serving/lookup.h"

namespace hotrow {

// As ServingLookup::begin, but outputs are on the GPU of the stream, which writes them in its
// order: after the end of the lookup its work may still go on. stream: a cudaStream_t. rows: of the
// lookup's tables; it must stay, too.
std::unique_ptr<UnfinishedLookup> begin_on_device(const ServingLookup& host, DeviceRows& rows,
                                                  void* stream, const ServingFeature* features,
                                                  size_t count, float* const* outputs,
                                                  const Executor& executor, SampleCounts counts,
                                                  const Overlay& overlay, LookupReport* report);

}  // namespace hotrow
