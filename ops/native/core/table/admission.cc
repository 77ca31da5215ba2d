#include "core/table/admission.h"

#include "core/base/status.h"
#include "core/table/frequency_filter.h"
#include "core/table/occurrence_counter.h"

namespace hotrow {

std::unique_ptr<AdmissionFilter> make_admission_filter(const AdmissionOptions& options,
                                                       size_t partitions) {
  if (options.kind == AdmissionKind::kAlways) return nullptr;
  if (options.occurrences < 1) {
    fail(Code::kInvalidArgument, "admission after 0 occurrences; at least 1");
  }
  if (options.kind == AdmissionKind::kCounter) return std::make_unique<OccurrenceCounter>(options);
  if (options.kind != AdmissionKind::kFilter) {
    fail(Code::kInvalidArgument, "admission kind %d; legal are 0 (always), 1 (counter), 2 (filter)",
         static_cast<int>(options.kind));
  }
  if (options.expected_keys < 1) {
    fail(Code::kInvalidArgument,
         "an admission filter for 0 expected keys; say how many keys wait at a time");
  }
  if (!(options.error_rate > 0.0 && options.error_rate < 1.0)) {
    fail(Code::kInvalidArgument, "admission error rate %g; legal are values between 0 and 1",
         options.error_rate);
  }
  return std::make_unique<FrequencyFilter>(options, partitions);
}

}  // namespace hotrow
