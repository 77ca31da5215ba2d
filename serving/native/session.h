// A SavedModel in a TensorFlow session: the only part of the server that talks to TensorFlow.
#pragma once

#include <tensorflow/c/c_api.h>

#include <atomic>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tensor.h"
#include "tensorflow/core/protobuf/meta_graph.pb.h"

namespace hotrow_server {

using Clock = std::chrono::system_clock;
using Deadline = std::optional<Clock::time_point>;

// What a run fetched, in the order of the fetches.
class Results {
 public:
  size_t size() const { return values_.size(); }
  const TF_Tensor* operator[](size_t i) const { return values_[i]; }

 private:
  friend class Session;
  std::vector<Tensor> owned_;
  std::vector<const TF_Tensor*> values_;
};

class Session {
 public:
  using Signatures = std::map<std::string, tensorflow::SignatureDef>;

  // session_config: a serialized ConfigProto; empty: TensorFlow's defaults. Fails with the code and
  // the message of TensorFlow.
  Session(const std::string& path, const std::vector<std::string>& tags,
          const std::string& session_config);
  ~Session() { close(); }
  Session(const Session&) = delete;

  const Signatures& signatures() const { return signatures_; }

  // The tensor "x:0" or "x" of the graph; without an operation when it has none.
  TF_Output tensor(const std::string& name) const;

  // Runs `fetches` with `inputs` fed to `feeds`; one fetch may come twice. Safe from several
  // threads. typical: how long such runs took, or 0; kept up to date.
  Results run(const std::vector<TF_Output>& feeds, const std::vector<TF_Tensor*>& inputs,
              const std::vector<TF_Output>& fetches, Deadline deadline,
              std::atomic<int64_t>* typical_nanos) const;

 private:
  void close();
  void read_signatures(const TF_Buffer* meta_graph);

  TF_Graph* graph_ = nullptr;
  TF_Session* session_ = nullptr;
  Signatures signatures_;
};

// Has TensorFlow look for its devices, about which it says much.
void open_devices();

// Loads a library of ops into the process, once.
void load_ops(const std::string& path);

}  // namespace hotrow_server
