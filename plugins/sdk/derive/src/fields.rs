//! Owns the derive `Fields`: the paths that a type reads, from its members and serde's attributes.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Data, DataEnum, DeriveInput, Error, Field, GenericParam, Generics, Result, Type};

use crate::names::step;
use crate::serde::{Container, Member};

/// What every object has, and every plugin sees.
const ALWAYS_THERE: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The implementation for a type below a resource.
pub fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let body = body(input, false)?;
    Ok(implementation(input, &body))
}

/// The implementation with this body.
pub fn implementation(input: &DeriveInput, body: &TokenStream) -> TokenStream {
    let name = &input.ident;
    let (generics, arguments, condition) = input.generics.split_for_impl();
    quote! {
        #[automatically_derived]
        impl #generics ::pilothouse_plugin::Fields for #name #arguments #condition {
            fn fields_at(path: &str, fields: &mut ::std::vec::Vec<::std::string::String>) {
                #body
            }
        }
    }
}

/// What collects the paths. The root of an object lists none of what every object has.
pub fn body(input: &DeriveInput, is_root: bool) -> Result<TokenStream> {
    check_generics(&input.generics)?;
    let container = Container::of(&input.attrs)?;
    if let Some(from) = &container.from {
        return Ok(in_place(from));
    }
    match &input.data {
        Data::Struct(data) => match &data.fields {
            syn::Fields::Named(named) if container.transparent => match named.named.first() {
                Some(field) if named.named.len() == 1 => Ok(in_place(&field.ty)),
                _ => Err(Error::new_spanned(&input.ident, "a transparent struct has one field")),
            },
            syn::Fields::Named(named) => {
                let members: Result<Vec<_>> = named
                    .named
                    .iter()
                    .map(|field| member(field, &container, is_root))
                    .collect();
                let members = members?;
                // Neither is used by a struct whose members are all skipped.
                Ok(quote! { let _ = (path, &fields); #(#members)* })
            }
            syn::Fields::Unnamed(unnamed) => match unnamed.unnamed.first() {
                Some(field) if unnamed.unnamed.len() == 1 => Ok(in_place(&field.ty)),
                _ => Err(Error::new_spanned(
                    &input.ident,
                    format!(
                        "{}: the parts of a tuple have no names, so their fields cannot be declared; use a struct with named \
                         fields, or annotate the members of this type with #[resource(whole)]",
                        input.ident
                    ),
                )),
            },
            syn::Fields::Unit => Err(Error::new_spanned(
                &input.ident,
                format!("{} reads no field; remove the derive", input.ident),
            )),
        },
        Data::Enum(data) => variants(data),
        Data::Union(_) => Err(Error::new_spanned(
            &input.ident,
            format!("{}: a union cannot be read from JSON; use a struct", input.ident),
        )),
    }
}

fn in_place(type_: &Type) -> TokenStream {
    quote_spanned!(type_.span()=> <#type_ as ::pilothouse_plugin::Fields>::fields_at(path, fields);)
}

/// A type that stands for others has their fields, which the derive does not see.
fn check_generics(generics: &Generics) -> Result<()> {
    for parameter in &generics.params {
        if !matches!(parameter, GenericParam::Lifetime(_)) {
            return Err(Error::new_spanned(
                parameter,
                "the fields of a type parameter are not known here; write out the type",
            ));
        }
    }
    Ok(())
}

/// An enum is one word, unless a variant has data: then what is read depends on the variant.
fn variants(data: &DataEnum) -> Result<TokenStream> {
    match data
        .variants
        .iter()
        .find(|variant| !matches!(variant.fields, syn::Fields::Unit))
    {
        None => Ok(quote!(::pilothouse_plugin::derive::whole(path, fields);)),
        Some(variant) => Err(Error::new_spanned(
            &variant.ident,
            format!(
                "{}: which fields are read depends on the variant; annotate the members of this type with \
                 #[resource(whole)] and derive `Fields` not",
                variant.ident
            ),
        )),
    }
}

fn member(field: &Field, container: &Container, is_root: bool) -> Result<TokenStream> {
    let Member {
        names,
        skipped,
        flattened,
        read_by,
        whole,
    } = Member::of(field, container.case)?;
    let named = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
    let type_ = &field.ty;
    if skipped {
        return Ok(TokenStream::new());
    }
    if flattened {
        if whole {
            return Err(Error::new_spanned(
                field,
                format!("{named}: a flattened member has no path of its own; remove #[resource(whole)]"),
            ));
        }
        if is_map(type_) {
            return Err(Error::new_spanned(
                field,
                format!(
                    "{named}: a flattened map reads whatever else the object has, which is no list of fields; name the \
                     members that are read"
                ),
            ));
        }
        return Ok(in_place(type_));
    }
    if let (Some(attribute), false) = (read_by, whole) {
        return Err(Error::new_spanned(
            field,
            format!(
                "{named}: a function reads this member (#[serde({attribute})]), so the fields that it reads are not known; \
                 annotate it with #[resource(whole)], which declares the whole member"
            ),
        ));
    }
    let mut paths = TokenStream::new();
    for name in names {
        if is_root && ALWAYS_THERE.contains(&name.as_str()) {
            continue;
        }
        let step = step(&name, field.span())?;
        paths.extend(if whole {
            quote!(::pilothouse_plugin::derive::whole(&[path, #step].concat(), fields);)
        } else {
            quote_spanned!(type_.span()=> ::pilothouse_plugin::derive::child::<#type_>(path, #step, fields);)
        });
    }
    Ok(paths)
}

/// Whether a type is a map by its name.
fn is_map(type_: &Type) -> bool {
    let Type::Path(path) = type_ else { return false };
    path.path.segments.last().is_some_and(|last| {
        ["BTreeMap", "HashMap", "IndexMap", "Map", "Value"]
            .iter()
            .any(|map| last.ident == map)
    })
}
