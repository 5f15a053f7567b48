// The self-signed X.509 certificate that carries a peer's key into TLS. It is made in memory at
// each start, says nothing but the key, and never expires: identity is the key, checked by its
// hash.
#pragma once

#include "base/bytes.h"
#include "crypto/keys.h"

namespace loom::crypto {

/// DER bytes of a self-signed certificate for the key.
Bytes MakeCertificate(const SigningKey& key);

/// The Ed25519 key inside a DER certificate of at most 16 KiB; kInvalid for any other input.
Result<PublicKey> CertificateKey(ByteView der);

}  // namespace loom::crypto
