#include "session/pure_signatures.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/op_def.pb.h"

namespace hotrow_server {
namespace {

using tensorflow::FunctionDef;
using tensorflow::NodeDef;
using tensorflow::OpDef;

// TensorFlow marks these ops stateful, but they only read variables and tables, or call functions.
const std::set<std::string_view> kReading = {
    "VarHandleOp", "ReadVariableOp", "VariableV2", "Variable", "IsVariableInitialized",
    "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "HashTable", "HashTableV2",
    "LookupTableFind", "LookupTableFindV2", "LookupTableSize", "LookupTableSizeV2",
    "MutableHashTableV2", "StatefulPartitionedCall", "PartitionedCall", "If", "While", "Case",
    "RandomUniform", "RandomStandardNormal", "Assert",
    // From our exports.
    "HotrowServingLookup"};

using Buffer = std::unique_ptr<TF_Buffer, void (*)(TF_Buffer*)>;
using Status = std::unique_ptr<TF_Status, void (*)(TF_Status*)>;
using Function = std::unique_ptr<TF_Function, void (*)(TF_Function*)>;

// Parses the output of `write(TF_Buffer*, TF_Status*)` into a message; false when it fails.
template <typename Message, typename Write>
bool read(Message* message, Write write) {
  const Buffer buffer(TF_NewBuffer(), TF_DeleteBuffer);
  const Status status(TF_NewStatus(), TF_DeleteStatus);
  write(buffer.get(), status.get());
  return TF_GetCode(status.get()) == TF_OK &&
         message->ParseFromArray(buffer->data, static_cast<int>(buffer->length));
}

std::string operation_of(std::string tensor) { return tensor.substr(0, tensor.rfind(':')); }

class Look {
 public:
  explicit Look(TF_Graph* graph) : graph_(graph) {
    std::vector<TF_Function*> functions(static_cast<size_t>(TF_GraphNumFunctions(graph)));
    const Status status(TF_NewStatus(), TF_DeleteStatus);
    TF_GraphGetFunctions(graph, functions.data(), static_cast<int>(functions.size()), status.get());
    if (TF_GetCode(status.get()) != TF_OK) return;  // then its callers count as impure
    for (TF_Function* function : functions) {
      functions_.emplace(TF_FunctionName(function), Function(function, TF_DeleteFunction));
    }
  }

  bool is_pure(const tensorflow::SignatureDef& signature) {
    std::set<TF_Operation*> seen;
    std::vector<TF_Operation*> waiting;
    for (const auto& [alias, input] : signature.inputs()) seen.insert(operation(input.name()));
    for (const auto& [alias, output] : signature.outputs()) {
      waiting.push_back(operation(output.name()));
    }
    while (!waiting.empty()) {
      TF_Operation* const at = waiting.back();
      waiting.pop_back();
      if (at == nullptr || !seen.insert(at).second) continue;
      if (!is_pure(at)) return false;
      for (int i = 0; i < TF_OperationNumInputs(at); ++i) {
        waiting.push_back(TF_OperationInput({at, i}).oper);
      }
      std::vector<TF_Operation*> before(static_cast<size_t>(TF_OperationNumControlInputs(at)));
      TF_OperationGetControlInputs(at, before.data(), static_cast<int>(before.size()));
      waiting.insert(waiting.end(), before.begin(), before.end());
    }
    return true;
  }

 private:
  // The facts of a registered op that matter here.
  struct Op {
    bool reads_only = false;
    bool calls = false;  // functions, by its attributes
  };

  TF_Operation* operation(const std::string& tensor) {
    return TF_GraphOperationByName(graph_, operation_of(tensor).c_str());
  }

  bool is_pure(TF_Operation* operation) {
    const std::string type = TF_OperationOpType(operation);
    // Nodes that call no function are not parsed: the value of a constant may be large.
    if (functions_.count(type) == 0 && !op_of(type).calls) return op_of(type).reads_only;
    NodeDef node;
    return read(&node,
                [&](auto* to, auto* status) { TF_OperationToNodeDef(operation, to, status); }) &&
           is_pure(node);
  }

  bool is_pure(const NodeDef& node) {
    const std::string& type = node.op();
    if (functions_.count(type) != 0 ? !is_pure_function(type) : !op_of(type).reads_only) {
      return false;
    }
    const auto pure = [&](const auto& function) {
      return function.name().empty() || is_pure_function(function.name());
    };
    return std::all_of(node.attr().begin(), node.attr().end(), [&](const auto& attr) {
      const auto& several = attr.second.list().func();
      return pure(attr.second.func()) && std::all_of(several.begin(), several.end(), pure);
    });
  }

  bool is_pure_function(const std::string& name) {
    // False while the function is being checked: a function that calls itself counts as changing
    // something.
    const auto [known, is_new] = known_.emplace(name, false);
    if (!is_new) return known->second;
    const auto found = functions_.find(name);
    FunctionDef def;
    const bool pure = found != functions_.end() &&
                      read(&def,
                           [&](auto* to, auto* status) {
                             TF_FunctionToFunctionDef(found->second.get(), to, status);
                           }) &&
                      std::all_of(def.node_def().begin(), def.node_def().end(),
                                  [&](const NodeDef& node) { return is_pure(node); });
    return known_[name] = pure;
  }

  const Op& op_of(const std::string& type) {
    const auto [known, is_new] = ops_.emplace(type, Op());
    Op& op = known->second;
    OpDef def;
    if (!is_new || !read(&def, [&](auto* to, auto* status) {
          TF_GraphGetOpDef(graph_, type.c_str(), to, status);
        })) {
      return op;
    }
    // Ops that write to TensorFlow 1's variables are not marked stateful.
    const bool writes =
        def.is_stateful() || std::any_of(def.input_arg().begin(), def.input_arg().end(),
                                         [](const auto& argument) { return argument.is_ref(); });
    op.reads_only = kReading.count(type) != 0 || !writes;
    op.calls = std::any_of(def.attr().begin(), def.attr().end(), [](const auto& attr) {
      return attr.type() == "func" || attr.type() == "list(func)";
    });
    return op;
  }

  TF_Graph* graph_;
  std::map<std::string, Function> functions_;
  std::map<std::string, bool> known_;  // functions
  std::map<std::string, Op> ops_;
};

}  // namespace

std::set<std::string> pure_signatures(
    TF_Graph* graph, const std::map<std::string, tensorflow::SignatureDef>& signatures) {
  Look look(graph);
  std::set<std::string> found;
  for (const auto& [name, signature] : signatures) {
    if (name.rfind("__saved_model", 0) != 0 && look.is_pure(signature)) found.insert(name);
  }
  return found;
}

}  // namespace hotrow_server
