// The numbers of the core's enums by the names that Python uses: their single source.
#include "core/base/cache_policy.h"
#include "core/comm/collectives.h"
#include "core/kernels/optimizer.h"
#include "core/kernels/pooling.h"
#include "core/kernels/row_init.h"
#include "core/kernels/row_line.h"
#include "core/store/row_codec.h"
#include "core/table/admission.h"
#include "core/table/sharding.h"
#include "python/binding.h"

namespace {

using hotrow::AdmissionKind, hotrow::CachePolicy, hotrow::Combiner, hotrow::DeviceCollectives,
    hotrow::InitKind, hotrow::OptimizerKind, hotrow::RowType, hotrow::Scheme, hotrow::StoredType;

template <class Enum>
nb::dict numbers(std::initializer_list<std::pair<const char*, Enum>> names) {
  nb::dict found;
  for (const auto& [name, value] : names) found[name] = static_cast<int>(value);
  return found;
}

}  // namespace

void bind_numbers(nb::module_& m) {
  nb::dict all;
  all["admission"] = numbers<AdmissionKind>({{"always", AdmissionKind::kAlways},
                                             {"counter", AdmissionKind::kCounter},
                                             {"bloom", AdmissionKind::kFilter}});
  all["cache_policy"] =
      numbers<CachePolicy>({{"lfu", CachePolicy::kLfu}, {"lru", CachePolicy::kLru}});
  all["combiner"] = numbers<Combiner>({{"none", Combiner::kNone},
                                       {"sum", Combiner::kSum},
                                       {"mean", Combiner::kMean},
                                       {"sqrtn", Combiner::kSqrtn}});
  all["device_collectives"] = numbers<DeviceCollectives>({{"auto", DeviceCollectives::kAuto},
                                                          {"nccl", DeviceCollectives::kNccl},
                                                          {"host", DeviceCollectives::kHost}});
  all["initializer"] = numbers<InitKind>({{"Constant", InitKind::kConstant},
                                          {"Uniform", InitKind::kUniform},
                                          {"Normal", InitKind::kNormal}});
  all["optimizer"] = numbers<OptimizerKind>({{"SGD", OptimizerKind::kSgd},
                                             {"Momentum", OptimizerKind::kMomentum},
                                             {"Adagrad", OptimizerKind::kAdagrad},
                                             {"RowwiseAdagrad", OptimizerKind::kRowwiseAdagrad},
                                             {"Adam", OptimizerKind::kAdam},
                                             {"Ftrl", OptimizerKind::kFtrl}});
  all["row_type"] = numbers<RowType>({{"float32", RowType::kFloat32},
                                      {"bfloat16", RowType::kBfloat16},
                                      {"float16", RowType::kFloat16}});
  all["sharding"] = numbers<Scheme>({{"row", Scheme::kRow},
                                     {"column", Scheme::kColumn},
                                     {"row_broadcast", Scheme::kRowBroadcast},
                                     {"table", Scheme::kTable},
                                     {"replicated", Scheme::kReplicated}});
  all["stored_type"] = numbers<StoredType>({{"float32", StoredType::kFloat32},
                                            {"bfloat16", StoredType::kBfloat16},
                                            {"float16", StoredType::kFloat16},
                                            {"int8", StoredType::kInt8}});
  m.attr("NUMBERS") = all;
}
