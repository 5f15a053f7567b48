// An invite as somebody pastes it: whatever is accepted is written back as the same line.
#include "swarm/invite.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  const std::string_view text = fuzz::Text(data, size);
  const auto invite = swarm::ParseInvite(text);
  if (!invite.ok()) {
    fuzz::ExpectGoodError(invite.error());
    return 0;
  }
  (void)swarm::CheckInviteTime(invite.value(), 1'700'000'000);
  (void)swarm::CheckInviteAuthority(invite.value(), {});
  const auto again = swarm::ParseInvite(swarm::EncodeInvite(invite.value()));
  fuzz::Expect(again.ok() && again.value() == invite.value(), "an accepted invite is canonical");
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  const auto owner = crypto::SigningKey::FromSeed({});
  crypto::Seed other;
  other.bytes[0] = std::byte{1};
  const auto member = crypto::SigningKey::FromSeed(other);
  swarm::Invite invite;
  invite.run.bytes[0] = std::byte{9};
  invite.addresses = {{{"node.example", 4001}, member.id()}, {{"10.0.0.2", 4001}, {}}};
  invite.expires = 1'800'000'000;
  invite.max_uses = 16;
  seeds.Add("owner", swarm::EncodeInvite(swarm::SignInvite(invite, owner).value()));
  invite.grants_vote = false;
  invite.delegation =
      swarm::MakeDelegation(owner, invite.run, member.public_key(), 1'900'000'000, true);
  seeds.Add("delegated", swarm::EncodeInvite(swarm::SignInvite(invite, member).value()));
}
