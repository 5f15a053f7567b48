// One line of JSON from whoever opened the control socket.
#include "node/control_request.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  const auto request = node::ParseControlRequest(fuzz::Text(data, size));
  if (!request.ok()) {
    fuzz::ExpectGoodError(request.error());
    return 0;
  }
  fuzz::Expect(request.value().seconds >= 0 && request.value().seconds <= INT64_MAX / 2,
               "a time to live is in its range");
  fuzz::Expect(request.value().uses >= 1 && request.value().uses <= 100'000,
               "a number of uses is in its range");
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  seeds.Add("status", R"({"verb": "status"})");
  seeds.Add("invite", R"({"verb": "invite", "seconds": 3600, "uses": 4})");
  seeds.Add("order", R"({"verb": "order", "toml": "[sync]\nrounds = 9\n", "revert": 3})");
  seeds.Add("reset", R"({"verb": "reset", "step": "commit", "leave_behind": true})");
  seeds.Add("delegate", R"({"verb": "delegate", "peer": "0a1b2c3d"})");
  seeds.AddRefused("no-round", R"({"verb": "order", "revert": -1})");
}
