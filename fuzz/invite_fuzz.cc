// An invite as somebody pastes it: whatever is accepted is written back as the same line.
#include "swarm/invite.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  const std::string_view text = fuzz::Text(data, size);
  (void)swarm::ParseAddress(text);
  const auto invite = swarm::ParseInvite(text);
  if (!invite.ok()) return 0;
  const auto again = swarm::ParseInvite(swarm::EncodeInvite(invite.value()));
  fuzz::Expect(again.ok() && again.value() == invite.value(), "an accepted invite is canonical");
  return 0;
}
