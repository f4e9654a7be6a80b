//! Parses the attributes about deserialization: serde's, and `#[resource(whole)]`.

use syn::ext::IdentExt as _;
use syn::meta::ParseNestedMeta;
use syn::{Attribute, Expr, Field, LitStr, Result, Token, Type, parenthesized, token};

use crate::names::Case;

/// Attributes of a type.
#[derive(Default)]
pub struct Container {
    /// Case of its members' names.
    pub case: Option<Case>,
    /// Type that is read in its place.
    pub from: Option<Type>,
    /// Set if its only field is read in its place.
    pub transparent: bool,
}

impl Container {
    /// Parses the attributes of a type.
    pub fn of(attributes: &[Attribute]) -> Result<Self> {
        let mut container = Self::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("rename_all") {
                    if let Some(case) = of_reading(&meta)? {
                        container.case = Some(Case::parse(&case)?);
                    }
                    Ok(())
                } else if meta.path.is_ident("from") || meta.path.is_ident("try_from") {
                    container.from = Some(meta.value()?.parse::<LitStr>()?.parse()?);
                    Ok(())
                } else if meta.path.is_ident("transparent") {
                    container.transparent = true;
                    Ok(())
                } else if meta.path.is_ident("remote") {
                    Err(meta.error(
                        "the fields that a type reads for another one are not known; annotate the members of that other type \
                         with #[resource(whole)]",
                    ))
                } else {
                    pass_over(&meta)
                }
            })?;
        }
        Ok(container)
    }
}

/// Attributes of a field.
#[derive(Debug, Default)]
pub struct Member {
    /// Names under which it is read.
    pub names: Vec<String>,
    /// Set if it is not read at all.
    pub skipped: bool,
    /// Set if its members are read from the object that contains it.
    pub flattened: bool,
    /// Attribute with a function which reads it, if there is one.
    pub read_by: Option<&'static str>,
    /// Set if it is declared as a whole.
    pub whole: bool,
}

impl Member {
    /// Parses the attributes of a field with a name.
    pub fn of(field: &Field, case: Option<Case>) -> Result<Self> {
        // The only field of a tuple has no name, and is read in place of the tuple.
        let own = field
            .ident
            .as_ref()
            .map_or_else(|| "0".to_owned(), |ident| ident.unraw().to_string());
        let mut member = Self::default();
        let mut name = None;
        let mut aliases = Vec::new();
        for attribute in &field.attrs {
            if attribute.path().is_ident("resource") {
                attribute.parse_nested_meta(|meta| {
                    if meta.path.is_ident("whole") {
                        member.whole = true;
                        Ok(())
                    } else {
                        let given = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
                        Err(meta.error(format!(
                            "{own}: #[resource] has no {given} here; a member can be annotated with #[resource(whole)] only"
                        )))
                    }
                })?;
            }
            if !attribute.path().is_ident("serde") {
                continue;
            }
            attribute.parse_nested_meta(|meta| {
                let is = |name: &str| meta.path.is_ident(name);
                if is("rename") {
                    name = of_reading(&meta)?.map(|name| name.value()).or(name.take());
                } else if is("alias") {
                    aliases.push(meta.value()?.parse::<LitStr>()?.value());
                } else if is("skip") || is("skip_deserializing") {
                    member.skipped = true;
                } else if is("flatten") {
                    member.flattened = true;
                } else if let Some(attribute) = ["with", "deserialize_with"].into_iter().find(|name| is(name)) {
                    member.read_by = Some(attribute);
                    pass_over(&meta)?;
                } else {
                    pass_over(&meta)?;
                }
                Ok(())
            })?;
        }
        let name = name.unwrap_or_else(|| case.map_or_else(|| own.clone(), |case| case.of_field(&own)));
        member.names.push(name);
        member.names.extend(aliases);
        Ok(member)
    }
}

/// Returns the value of `name = "..."`, or of `name(deserialize = "...")`; none if only `serialize` is given.
fn of_reading(meta: &ParseNestedMeta<'_>) -> Result<Option<LitStr>> {
    if meta.input.peek(Token![=]) {
        return meta.value()?.parse().map(Some);
    }
    let mut value = None;
    meta.parse_nested_meta(|inner| {
        let given: LitStr = inner.value()?.parse()?;
        if inner.path.is_ident("deserialize") {
            value = Some(given);
        }
        Ok(())
    })?;
    Ok(value)
}

/// Skips an attribute that does not affect deserialization.
fn pass_over(meta: &ParseNestedMeta<'_>) -> Result<()> {
    if meta.input.peek(Token![=]) {
        meta.value()?.parse::<Expr>()?;
    } else if meta.input.peek(token::Paren) {
        let content;
        parenthesized!(content in meta.input);
        content.parse::<proc_macro2::TokenStream>()?;
    }
    Ok(())
}
