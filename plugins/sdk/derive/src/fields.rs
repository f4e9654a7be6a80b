//! The derive `Fields`: generates the paths that a type reads, from its members and serde's attributes.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{
    Data, DataEnum, DeriveInput, Error, Field, GenericArgument, GenericParam, Ident, PathArguments, PathSegment,
    Result, Type,
};

use crate::names::step;
use crate::serde::{Container, Member};

/// Types that are maps, by name; the last two are JSON values.
const MAPS: [&str; 5] = ["BTreeMap", "HashMap", "IndexMap", "Map", "Value"];

/// Types that serde cannot read from the key of a JSON object, by name.
const NO_KEYS: [&str; 7] = [
    "BTreeSet",
    "HashSet",
    "Option",
    "ObjectMeta",
    "OwnerReference",
    "Vec",
    "VecDeque",
];

/// Members that every object has, and every plugin sees.
const ALWAYS_THERE: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Generates the implementation for a type below a resource.
pub fn expand(input: &DeriveInput) -> Result<TokenStream> {
    if let Some(attribute) = input
        .attrs
        .iter()
        .find(|attribute| attribute.path().is_ident("resource"))
    {
        return Err(Error::new_spanned(
            attribute,
            format!(
                "{}: #[resource] on a type is for the derive `Resource`; with `Fields`, annotate single members with \
                 #[resource(whole)]",
                input.ident
            ),
        ));
    }
    let body = body(input, false)?;
    Ok(implementation(input, &body))
}

/// Returns the implementation with this body.
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

/// Returns the code that collects the paths. The root of an object leaves out the members that every object has.
pub fn body(input: &DeriveInput, is_root: bool) -> Result<TokenStream> {
    check_generics(input)?;
    let container = Container::of(&input.attrs)?;
    if let Some(from) = &container.from {
        return Ok(in_place(from));
    }
    match &input.data {
        Data::Struct(data) => match &data.fields {
            syn::Fields::Named(named) if container.transparent => match named.named.first() {
                Some(field) if named.named.len() == 1 => only(field),
                _ => Err(Error::new_spanned(
                    &input.ident,
                    format!("{}: a transparent struct has one field", input.ident),
                )),
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
                Some(field) if unnamed.unnamed.len() == 1 => only(field),
                _ => Err(Error::new_spanned(
                    &input.ident,
                    format!(
                        "{}: the parts of a tuple have no names, so their fields cannot be declared; use a struct with named \
                         fields, or remove the derive and annotate members of this type with #[resource(whole)]",
                        input.ident
                    ),
                )),
            },
            syn::Fields::Unit => Err(Error::new_spanned(
                &input.ident,
                format!("{} reads no field; remove the derive", input.ident),
            )),
        },
        Data::Enum(data) => variants(&input.ident, data),
        Data::Union(_) => Err(Error::new_spanned(
            &input.ident,
            format!("{}: a union cannot be read from JSON; use a struct", input.ident),
        )),
    }
}

fn in_place(type_: &Type) -> TokenStream {
    quote_spanned!(type_.span()=> <#type_ as ::pilothouse_plugin::Fields>::fields_at(path, fields);)
}

/// Returns the paths of the only field of a struct, which is read in the struct's place.
fn only(field: &Field) -> Result<TokenStream> {
    let member = Member::of(field, None)?;
    check_reading(field, &member)?;
    check_keys(field)?;
    if member.whole {
        return Ok(quote!(::pilothouse_plugin::derive::whole(path, fields);));
    }
    Ok(in_place(&field.ty))
}

/// Refuses generic types: the fields of a type parameter are unknown to the derive.
fn check_generics(input: &DeriveInput) -> Result<()> {
    for parameter in &input.generics.params {
        let name = match parameter {
            GenericParam::Lifetime(_) => continue,
            GenericParam::Type(parameter) => &parameter.ident,
            GenericParam::Const(parameter) => &parameter.ident,
        };
        return Err(Error::new_spanned(
            parameter,
            format!(
                "{}: the fields of the parameter {name} are not known here; write out the type",
                input.ident
            ),
        ));
    }
    Ok(())
}

/// Returns the paths of an enum: it is a string, unless a variant has data; then the paths depend on the variant.
fn variants(name: &Ident, data: &DataEnum) -> Result<TokenStream> {
    match data
        .variants
        .iter()
        .find(|variant| !matches!(variant.fields, syn::Fields::Unit))
    {
        None => Ok(quote!(::pilothouse_plugin::derive::whole(path, fields);)),
        Some(variant) => Err(Error::new_spanned(
            &variant.ident,
            format!(
                "{name}: which fields are read depends on the variant, and {} has data; remove the derive and annotate \
                 members of this type with #[resource(whole)]",
                variant.ident
            ),
        )),
    }
}

fn member(field: &Field, container: &Container, is_root: bool) -> Result<TokenStream> {
    let member = Member::of(field, container.case)?;
    let named = name_of(field);
    let type_ = &field.ty;
    if member.skipped {
        return Ok(TokenStream::new());
    }
    if member.flattened {
        if member.whole {
            return Err(Error::new_spanned(
                field,
                format!("{named}: a flattened member has no path of its own; remove #[resource(whole)]"),
            ));
        }
        if map(type_).is_some() {
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
    check_reading(field, &member)?;
    check_keys(field)?;
    let mut paths = TokenStream::new();
    for name in member.names {
        if is_root && ALWAYS_THERE.contains(&name.as_str()) {
            continue;
        }
        let step = step(&name, field.span())?;
        paths.extend(if member.whole {
            quote!(::pilothouse_plugin::derive::whole(&[path, #step].concat(), fields);)
        } else {
            quote_spanned!(type_.span()=> ::pilothouse_plugin::derive::child::<#type_>(path, #step, fields);)
        });
    }
    Ok(paths)
}

/// Returns the member's name in messages.
fn name_of(field: &Field) -> String {
    field
        .ident
        .as_ref()
        .map_or_else(|| "0".to_owned(), |ident| ident.unraw().to_string())
}

/// Checks that a member that a function reads is declared as a whole.
fn check_reading(field: &Field, member: &Member) -> Result<()> {
    match member.read_by {
        Some(attribute) if !member.whole => Err(Error::new_spanned(
            field,
            format!(
                "{}: a function reads this member (#[serde({attribute})]), so the fields that it reads are not known; \
                 annotate it with #[resource(whole)], which declares the whole member",
                name_of(field)
            ),
        )),
        _ => Ok(()),
    }
}

/// Checks the type of a map's keys: keys of a JSON object are strings, so serde would refuse other types always.
fn check_keys(field: &Field) -> Result<()> {
    let Some(PathArguments::AngleBracketed(arguments)) = map(&field.ty).map(|map| &map.arguments) else {
        return Ok(());
    };
    let Some(GenericArgument::Type(key)) = arguments.args.first() else {
        return Ok(());
    };
    let is_no_string = match key {
        Type::Tuple(_) | Type::Array(_) | Type::Slice(_) => true,
        Type::Path(path) => path.path.segments.last().is_some_and(|last| {
            NO_KEYS.iter().any(|no_key| last.ident == no_key) || MAPS.iter().any(|map| last.ident == map)
        }),
        _ => false,
    };
    if is_no_string {
        return Err(Error::new_spanned(
            key,
            format!(
                "{}: the keys of a JSON object are strings, and this type cannot be read from one; use String, a number, or an \
                 enum of words",
                name_of(field)
            ),
        ));
    }
    Ok(())
}

/// Returns the type as a map, if its name is one of a map, directly or in an `Option`.
fn map(type_: &Type) -> Option<&PathSegment> {
    let Type::Path(path) = type_ else { return None };
    let last = path.path.segments.last()?;
    if let ("Option" | "Box", PathArguments::AngleBracketed(arguments)) = (&*last.ident.to_string(), &last.arguments)
        && let Some(GenericArgument::Type(inner)) = arguments.args.first()
    {
        return map(inner);
    }
    MAPS.iter().any(|map| last.ident == map).then_some(last)
}
