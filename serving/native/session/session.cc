#include "session/session.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <string_view>

#include "base/refused.h"
#include "base/workers.h"
#include "core/abi/c_api.h"
#include "session/pure_signatures.h"

namespace hotrow_server {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// Longer runs use TensorFlow's threads: several threads may then share a run, and a deadline ends
// it. That costs 0.1 ms; shorter runs stay in the thread of their request.
constexpr int64_t kLongNanos = 2'000'000;
// Before a longer run, another thread is woken for the next request, which costs 20 us.
constexpr int64_t kBriefNanos = 1'000'000;
// No CPU is taken away for longer than this, except from a machine that is lost.
constexpr int64_t kHeldUpNanos = 50'000'000;
// In place of the typical time, after one run.
constexpr int64_t kRanOnce = 1;
// A prefix in our exports; see ops/export/signatures.py.
constexpr std::string_view kReport = "hotrow/report/";
// Of MetaGraphDef.
constexpr int kSaverDef = 3;
constexpr int kSignatureDef = 5;

// The line that TensorFlow appends to an op's message when it replaces an UNAVAILABLE error by
// INTERNAL, for its own clusters.
constexpr const char* kReplaced =
    "originally returned UnavailableError, and was replaced by InternalError";

struct StatusOf {
  StatusOf() : status(TF_NewStatus()) {}
  ~StatusOf() { TF_DeleteStatus(status); }
  StatusOf(const StatusOf&) = delete;
  void check() const {
    const TF_Code code = TF_GetCode(status);
    if (code == TF_OK) return;
    std::string text = TF_Message(status);
    const size_t replaced = text.find(kReplaced);
    if (code != TF_INTERNAL || replaced == std::string::npos) {
      throw Refused(static_cast<grpc::StatusCode>(code), text);
    }
    text.erase(text.rfind('\n', replaced) + 1);
    throw Refused(grpc::StatusCode::UNAVAILABLE, text);
  }
  TF_Status* status;
};

// A serialized RunOptions{timeout_in_ms, inter_op_thread_pool}.
class RunOptions {
 public:
  RunOptions(int64_t timeout_millis, bool in_this_thread) {
    namespace io = google::protobuf::io;
    uint8_t* end = bytes_;
    if (timeout_millis > 0) {
      *end++ = 2 << 3;
      end = io::CodedOutputStream::WriteVarint64ToArray(static_cast<uint64_t>(timeout_millis), end);
    }
    if (in_this_thread) {
      *end++ = 3 << 3;
      end = io::CodedOutputStream::WriteVarint64ToArray(~uint64_t{0}, end);  // -1
    }
    buffer_ = {bytes_, static_cast<size_t>(end - bytes_), nullptr};
  }
  const TF_Buffer* get() const { return buffer_.length == 0 ? nullptr : &buffer_; }

 private:
  uint8_t bytes_[32];
  TF_Buffer buffer_;
};

// The first run also initializes, so its time is not typical. Later ones move the typical time by
// an eighth of it at most, towards the median: a run that lost its CPU for some milliseconds says
// nothing of the next one. A run beyond kHeldUpNanos lost more than that.
int64_t next_typical(int64_t typical, int64_t taken) {
  if (typical == 0) return kRanOnce;
  if (typical == kRanOnce) return std::max(taken, kRanOnce + 1);
  const int64_t step = (taken - typical) / 8, most = typical / 8 + 1;
  return typical + (taken > kHeldUpNanos ? step : std::clamp(step, -most, most));
}

// Whether a serialized graph has a loop, whose runs may take any time: a NodeDef with a loop `op`,
// its field 2.
bool has_loop(std::string_view graph) {
  using namespace std::string_view_literals;
  for (const std::string_view op :
       {"\x12\x05While"sv, "\x12\x0eStatelessWhile"sv, "\x12\x08LoopCond"sv}) {
    if (memmem(graph.data(), graph.size(), op.data(), op.size()) != nullptr) return true;
  }
  return false;
}

}  // namespace

Session::Session(const std::string& path, const std::vector<std::string>& tags,
                 const std::string& session_config) {
  const StatusOf status;
  const std::unique_ptr<TF_SessionOptions, void (*)(TF_SessionOptions*)> options(
      TF_NewSessionOptions(), TF_DeleteSessionOptions);
  if (!session_config.empty()) {
    TF_SetConfig(options.get(), session_config.data(), session_config.size(), status.status);
    status.check();
  }
  std::vector<const char*> tag_list;
  for (const std::string& tag : tags) tag_list.push_back(tag.c_str());
  const std::unique_ptr<TF_Buffer, void (*)(TF_Buffer*)> meta_graph(TF_NewBuffer(),
                                                                    TF_DeleteBuffer);
  graph_ = TF_NewGraph();
  // Restores in this thread, which may have a lower priority, not in the threads of requests.
  const RunOptions in_this_thread(0, true);
  session_ = TF_LoadSessionFromSavedModel(options.get(), in_this_thread.get(), path.c_str(),
                                          tag_list.data(), static_cast<int>(tag_list.size()),
                                          graph_, meta_graph.get(), status.status);
  try {
    status.check();
    read_meta_graph(meta_graph.get());
    may_loop_ = has_loop({static_cast<const char*>(meta_graph->data), meta_graph->length});
  } catch (...) {
    close();
    throw;
  }
}

void Session::close() {
  if (session_ != nullptr) {
    const StatusOf status;
    TF_CloseSession(session_, status.status);
    TF_DeleteSession(session_, status.status);
  }
  if (graph_ != nullptr) TF_DeleteGraph(graph_);
  session_ = nullptr;
  graph_ = nullptr;
}

void Session::read_meta_graph(const TF_Buffer* meta_graph) {
  // Parses only the signatures and the SaverDef of a MetaGraphDef, by hand: the rest is the graph,
  // which TensorFlow has loaded.
  using google::protobuf::internal::WireFormatLite;
  constexpr auto kDelimited = WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
  google::protobuf::io::CodedInputStream in(static_cast<const uint8_t*>(meta_graph->data),
                                            static_cast<int>(meta_graph->length));
  for (uint32_t tag; (tag = in.ReadTag()) != 0;) {
    const bool signature = tag == WireFormatLite::MakeTag(kSignatureDef, kDelimited);
    if (!signature && tag != WireFormatLite::MakeTag(kSaverDef, kDelimited)) {
      if (!WireFormatLite::SkipField(&in, tag)) break;
      continue;
    }
    std::string part;
    uint32_t bytes = 0;
    if (!in.ReadVarint32(&bytes) || !in.ReadString(&part, static_cast<int>(bytes))) break;
    if (signature) {
      read_signature(part);
    } else {
      saver_.ParseFromString(part);
    }
  }
}

// entry: of the map: name and SignatureDef.
void Session::read_signature(const std::string& entry) {
  using google::protobuf::internal::WireFormatLite;
  google::protobuf::io::CodedInputStream fields(reinterpret_cast<const uint8_t*>(entry.data()),
                                                static_cast<int>(entry.size()));
  std::string name, value;
  for (uint32_t field; (field = fields.ReadTag()) != 0;) {
    uint32_t length = 0;
    if (WireFormatLite::GetTagWireType(field) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED ||
        !fields.ReadVarint32(&length)) {
      break;
    }
    std::string& into = WireFormatLite::GetTagFieldNumber(field) == 1 ? name : value;
    if (!fields.ReadString(&into, static_cast<int>(length))) break;
  }
  if (!signatures_[name].ParseFromString(value)) {
    throw Refused(grpc::StatusCode::DATA_LOSS, "the signature " + name + " cannot be read");
  }
  // Not for clients: outputs that ops/export keeps apart from a signature's outputs.
  if (name.starts_with(kReport)) {
    for (const auto& [output, info] : signatures_[name].outputs()) {
      reports_[{name.substr(kReport.size()), output}] = info.name();
    }
    signatures_.erase(name);
  }
}

void Session::restore(const std::string& prefix) const {
  const TF_Output file = tensor(saver_.filename_tensor_name());
  TF_Operation* const restoring = TF_GraphOperationByName(graph_, saver_.restore_op_name().c_str());
  if (file.oper == nullptr || restoring == nullptr) {
    throw Refused(grpc::StatusCode::FAILED_PRECONDITION,
                  "the SavedModel does not say how its variables are restored");
  }
  const Tensor name = make_tensor(TF_STRING, {});
  TF_TString_Copy(static_cast<TF_TString*>(TF_TensorData(name.get())), prefix.data(),
                  prefix.size());
  TF_Tensor* const value = name.get();
  // Runs in this thread, which has a lower priority.
  const RunOptions options(0, true);
  const StatusOf status;
  TF_SessionRun(session_, options.get(), &file, &value, 1, nullptr, nullptr, 0, &restoring, 1,
                nullptr, status.status);
  status.check();
}

std::set<std::string> Session::pure_signatures() const {
  return hotrow_server::pure_signatures(graph_, signatures_);
}

TF_Output Session::report(const std::string& signature, const std::string& name) const {
  const auto found = reports_.find({signature, name});
  return found == reports_.end() ? TF_Output{nullptr, 0} : tensor(found->second);
}

TF_Output Session::tensor(const std::string& name) const {
  const size_t colon = name.rfind(':');
  const std::string operation = name.substr(0, colon);
  int index = 0;
  if (colon != std::string::npos) index = std::atoi(name.c_str() + colon + 1);
  TF_Operation* const found = TF_GraphOperationByName(graph_, operation.c_str());
  if (found == nullptr || index < 0 || index >= TF_OperationNumOutputs(found)) return {nullptr, 0};
  return {found, index};
}

// While it lives, lookups in this thread know when the run that they are of must end.
class RequestEnd {
 public:
  explicit RequestEnd(const Deadline& deadline) {
    if (!deadline.has_value()) return;
    const auto end = std::chrono::steady_clock::now() + (*deadline - Clock::now());
    hr_serving_set_request_end(duration_cast<nanoseconds>(end.time_since_epoch()).count());
  }
  ~RequestEnd() { hr_serving_set_request_end(std::numeric_limits<int64_t>::max()); }
  RequestEnd(const RequestEnd&) = delete;
};

// patience: before the deadline.
bool is_over(const Deadline& deadline, milliseconds patience = milliseconds(0)) {
  return deadline.has_value() && *deadline <= Clock::now() + patience;
}

bool takes_long(const Run& run) {
  const int64_t typical = run.typical_nanos->load(std::memory_order_relaxed);
  return typical <= kRanOnce || typical > kBriefNanos;
}

Results Session::run(const Run& run) const {
  int64_t timeout = 0;
  if (run.deadline.has_value()) {
    timeout = duration_cast<milliseconds>(*run.deadline - Clock::now()).count();
    if (is_over(run.deadline)) {
      throw Refused(grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded");
    }
    timeout = std::max<int64_t>(timeout, 1);
  }
  // A session accepts each fetch only once.
  std::vector<TF_Output> once;
  std::vector<size_t> places;
  for (const TF_Output& fetch : run.fetches) {
    size_t place = 0;
    while (place < once.size() && !same(once[place], fetch)) ++place;
    if (place == once.size()) once.push_back(fetch);
    places.push_back(place);
  }
  const int64_t typical = run.typical_nanos->load(std::memory_order_relaxed);
  // Nothing could end such a run in this thread.
  const bool endless = may_loop_ && run.deadline.has_value();
  const bool in_this_thread = typical > kRanOnce && typical < kLongNanos && !endless;
  if (takes_long(run)) Workers::hand_over();
  const RunOptions options(in_this_thread ? 0 : timeout, in_this_thread);
  std::vector<TF_Tensor*> values(once.size(), nullptr);
  const StatusOf status;
  const RequestEnd end(run.deadline);
  const auto started = std::chrono::steady_clock::now();
  TF_SessionRun(session_, options.get(), run.feeds.data(), run.inputs.data(),
                static_cast<int>(run.inputs.size()), once.data(), values.data(),
                static_cast<int>(once.size()), nullptr, 0, nullptr, status.status);
  const int64_t taken =
      duration_cast<nanoseconds>(std::chrono::steady_clock::now() - started).count();
  std::vector<Tensor> owned;
  for (TF_Tensor* value : values) owned.emplace_back(value);
  try {
    status.check();
  } catch (const Refused& refused) {
    // It would have taken longer still.
    if (refused.code() == grpc::StatusCode::DEADLINE_EXCEEDED && taken > typical) {
      run.typical_nanos->store(next_typical(typical, taken), std::memory_order_relaxed);
    }
    // The end of the request also ends its reads of rows: then the store is not at fault.
    // TensorFlow counts whole milliseconds, so that it ends a little earlier.
    const bool ended = is_over(run.deadline, milliseconds(2));
    if (refused.code() != grpc::StatusCode::UNAVAILABLE || !ended) throw;
    throw Refused(grpc::StatusCode::DEADLINE_EXCEEDED, refused.what());
  }
  run.typical_nanos->store(next_typical(typical, taken), std::memory_order_relaxed);
  return {std::move(owned), places};
}

void wait_in_threads_of_requests() {
  hr_serving_set_may_wait([](double seconds) -> int {
    if (!Workers::is_own_thread()) return 0;
    if (seconds * 1e9 > kBriefNanos) Workers::hand_over();
    return 1;
  });
}

void open_devices() {
  // A ConfigProto with device_count {key: "GPU" value: 0}. The first session that opens a GPU
  // decides how much of its memory TensorFlow takes, for all later ones: that must be a session
  // with the configuration of the flags.
  static constexpr char kNoGpu[] = "\x0a\x07\x0a\x03GPU\x10\x00";
  const StatusOf status;
  TF_SessionOptions* const options = TF_NewSessionOptions();
  TF_SetConfig(options, kNoGpu, sizeof(kNoGpu) - 1, status.status);
  TF_Graph* const graph = TF_NewGraph();
  if (TF_Session* session = TF_NewSession(graph, options, status.status)) {
    TF_DeleteSession(session, status.status);
  }
  TF_DeleteGraph(graph);
  TF_DeleteSessionOptions(options);
}

void load_ops(const std::string& path) {
  static std::mutex mutex;
  static std::set<std::string> loaded;
  const std::lock_guard lock(mutex);
  if (loaded.count(path) != 0) return;
  const StatusOf status;
  TF_LoadLibrary(path.c_str(), status.status);
  status.check();
  loaded.insert(path);
}

}  // namespace hotrow_server
