// Written by `cargo xtask gen-protocol` from crates/protocol/schema. Do not edit.

//! Request of `ApiVersions`. Versions 0 to 4, tagged fields from version 3 on.

use crate::ApiKey;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Decode, Encode, Request, Str, check_decode, check_encode};

/// `ApiVersionsRequest`, versions 0 to 4.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiVersionsRequest<'a> {
    /// `string`, versions 3 to 4.
    pub client_software_name: Str<'a>,
    /// `string`, versions 3 to 4.
    pub client_software_version: Str<'a>,
}

impl<'a> Decode<'a> for ApiVersionsRequest<'a> {
    fn decode(d: &mut Decoder<'a>, version: i16) -> Result<Self, DecodeError> {
        check_decode(version, 0, 4)?;
        let flexible = version >= 3;
        let client_software_name = if version >= 3 { d.string(true)? } else { Str::Borrowed("") };
        let client_software_version = if version >= 3 { d.string(true)? } else { Str::Borrowed("") };
        if flexible {
            d.skip_tagged_fields()?;
        }
        Ok(Self { client_software_name, client_software_version })
    }
}

impl Encode for ApiVersionsRequest<'_> {
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        check_encode(version, 0, 4)?;
        let flexible = version >= 3;
        if version >= 3 {
            e.string(true, &self.client_software_name)?;
        }
        if version >= 3 {
            e.string(true, &self.client_software_version)?;
        }
        if flexible {
            e.no_tagged_fields();
        }
        Ok(())
    }
}

impl<'a> Request<'a> for ApiVersionsRequest<'a> {
    const KEY: ApiKey = ApiKey::ApiVersions;
    type Response<'r> = super::ApiVersionsResponse<'r>;
}
