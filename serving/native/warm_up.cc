#include "warm_up.h"

#include <chrono>

#include "inference.h"
#include "metrics.h"
#include "refused.h"

namespace hotrow_server {
namespace {

namespace serving = tensorflow::serving;

// With a reply that nobody reads.
template <typename Request, typename Response>
Plan planned(const Inference& inference,
             Plan (Inference::*method)(const Request&, RequestFacts*, Response*) const,
             const std::string& bytes, RequestFacts* facts) {
  Request request;
  if (!request.ParseFromString(bytes)) refuse_unparsed();
  const auto response = std::make_shared<Response>();
  Plan plan = (inference.*method)(request, facts, response.get());
  plan.reply = [response, inner = std::move(plan.reply)](const Results& results) {
    inner(results);
  };
  return plan;
}

Plan plan_of(const hotrow::WarmUp& warm_up, const Inference& inference, grpc::ByteBuffer* reply) {
  RequestFacts facts("", false);  // nobody counts it
  switch (warm_up.method()) {
    case hotrow::WarmUp::CLASSIFY:
      return planned(inference, &Inference::classify, warm_up.request(), &facts);
    case hotrow::WarmUp::REGRESS:
      return planned(inference, &Inference::regress, warm_up.request(), &facts);
    case hotrow::WarmUp::MULTI_INFERENCE:
      return planned(inference, &Inference::multi_inference, warm_up.request(), &facts);
    default: {
      const grpc::Slice slice(warm_up.request());
      grpc::ByteBuffer buffer(&slice, 1);
      return inference.predict(&buffer, &facts, reply);
    }
  }
}

void answer_once(const hotrow::WarmUp& warm_up, const Inference& inference) {
  grpc::ByteBuffer reply;
  Plan plan = plan_of(warm_up, inference, &reply);
  if (warm_up.most_millis() > 0) {
    plan.run.deadline = Clock::now() + std::chrono::milliseconds(warm_up.most_millis());
  }
  plan.reply(plan.way.servable->run_alone(plan.run));
}

}  // namespace

void warm_up(const hotrow::LoadRequest& load, const std::shared_ptr<Servable>& servable) {
  hotrow::Routes table;
  auto* const model = table.add_models();
  model->set_name(load.model());
  auto* const version = model->add_versions();
  version->set_version(load.version());
  version->set_servable(load.servable());
  CurrentRoutes routes;
  routes.set(std::make_shared<const Routes>(table, Routes::Servables{{load.servable(), servable}}));
  const Inference inference(routes, {});
  for (const hotrow::WarmUp& one : load.warm_ups()) {
    try {
      for (int run = 0; run < one.runs(); ++run) answer_once(one, inference);
    } catch (const Refused&) {
      if (!one.may_fail()) throw;
    }
  }
}

}  // namespace hotrow_server
