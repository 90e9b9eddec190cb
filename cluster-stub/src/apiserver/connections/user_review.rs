//! TokenReview and SelfSubjectReview: who somebody is.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::apiserver::authn::{Authenticator, ISSUER, UserInfo};
use crate::apiserver::status::ApiError;

/// Upstream v1.36.2: pkg/registry/authentication/tokenreview/storage.go.
pub(super) async fn token_review(
    mut review: Value,
    authenticator: &Authenticator,
    now: Timestamp,
) -> Result<Value, ApiError> {
    let spec = &review["spec"];
    let token = spec["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
    }
    let mut audiences: Vec<&str> =
        spec["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if audiences.is_empty() {
        audiences.push(ISSUER);
    }
    let mut status = json!({"user": {}});
    match authenticator.authenticate_token(token, now).await {
        Ok(Some(identity)) => {
            let common: Vec<&str> =
                audiences.into_iter().filter(|audience| identity.audiences.iter().any(|own| own == audience)).collect();
            if common.is_empty() {
                let (want, got) = (&review["spec"]["audiences"], identity.audiences);
                status["error"] = json!(format!(
                    "[invalid bearer token, token audiences {got:?} is invalid for the target audiences {want}]"
                ));
            } else {
                status["authenticated"] = json!(true);
                status["user"] = user_info(&identity.user);
                status["audiences"] = json!(common);
            }
        }
        Ok(None) => status["error"] = json!("invalid bearer token"),
        Err(error) => status["error"] = json!(format!("[invalid bearer token, {error}]")),
    }
    review["status"] = status;
    Ok(review)
}

/// Upstream v1.36.2: pkg/registry/authentication/selfsubjectreview/rest.go.
pub(super) fn self_subject_review(mut review: Value, user: &UserInfo) -> Value {
    review["status"] = json!({"userInfo": user_info(user)});
    review
}

fn user_info(user: &UserInfo) -> Value {
    let mut info = json!({"username": user.name});
    if !user.uid.is_empty() {
        info["uid"] = json!(user.uid);
    }
    if !user.groups.is_empty() {
        info["groups"] = json!(user.groups);
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_self_review_shows_what_is_set() {
        let user = UserInfo::authenticated("jane", ["dev"]);
        let review = self_subject_review(json!({"kind": "SelfSubjectReview"}), &user);
        assert_eq!(
            review["status"],
            json!({"userInfo": {"username": "jane", "groups": ["dev", "system:authenticated"]}})
        );
    }
}
